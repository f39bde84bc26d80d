"""What the ranks of a job have loaded, and a process that loads it before it becomes one of them.

    python -P -m ddpgrad.launcher.job.preloading CONTROL REPORT

CONTROL is a pipe with two lines of JSON from the launcher: what to load, and, when a process of the job is needed, its
environment and its arguments after REPORT (see process_main.py). A process whose pipe ends without them ends, too.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ddpgrad.core import environment
from ddpgrad.distributed.failure.channel import Sender

from . import process_main


def report_after_first_step(sender: Sender) -> None:
    """Let a rank tell the launcher what it has loaded, when it has finished an optimizer step."""
    from ddpgrad.optim.optimizer import register_optimizer_step_post_hook

    def report(*_: Any) -> None:
        handle.remove()
        sender.loaded(_modules(), _kernels())

    handle = register_optimizer_step_post_hook(report)


def _modules() -> list[str]:
    """This package's modules, which bring their libraries; those of the program may do more than to load."""
    return [name for name in sys.modules if name.startswith("ddpgrad.")]


def _kernels() -> str:
    """The compiled functions in these modules, each with the types that it was called with."""
    if "numba" not in sys.modules:
        return ""
    from numba.core.dispatcher import Dispatcher

    found = [
        (module, name, value.signatures)
        for module in _modules()
        for name, value in list(vars(sys.modules[module]).items())
        if isinstance(value, Dispatcher) and value.signatures
    ]
    return base64.b64encode(pickle.dumps(found)).decode()


def _load(modules: Sequence[str], kernels: str) -> None:
    """Import `modules`, and load `kernels` from their files."""
    for name in modules:
        # What cannot be loaded now is the program's to load, or to complain of.
        with contextlib.suppress(Exception):
            import_module(name)
    for module, name, signatures in pickle.loads(base64.b64decode(kernels)) if kernels else ():
        for signature in signatures:
            with contextlib.suppress(Exception):
                getattr(import_module(module), name).compile(signature)


def main(argv: Sequence[str]) -> int:
    """Load what CONTROL says, wait, and run a process of the job; returns its exit code."""
    control, report = argv
    with open(int(control)) as lines:
        if not (first := lines.readline()):
            return 0
        _load(*json.loads(first))
        if not (second := lines.readline()):
            return 0
    variables, arguments = json.loads(second)
    seen = environment.mapping()
    seen.clear()
    seen.update(variables)
    return process_main.main([report, *arguments])


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)
    sys.exit(main(sys.argv[1:]))
