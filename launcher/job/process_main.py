"""The program of a process of a job: it connects to the launcher before anything can fail.

    python -P -m ddpgrad.launcher.job.process_main REPORT script|module TARGET [ARGUMENTS ...]

REPORT is the address of the launcher's channel, or 'none' in a debug run, which has no launcher. The rest
of ddpgrad is imported after that: if a process died unnoticed during the import, the others would wait for
it, since mpiexec does not end them.
"""

from __future__ import annotations

import faulthandler
import sys
import time
import traceback
from collections.abc import Sequence

from ddpgrad.distributed.failure.channel import Failure, Sender
from ddpgrad.distributed.failure.stacks_signal import STACKS_SIGNAL


def main(argv: Sequence[str]) -> int:
    """Run one process of a job; returns its exit code."""
    report, kind, target, *arguments = argv
    sender = None if report == "none" else Sender(report)
    if sender is not None:
        # It answers even while native code holds the interpreter lock.
        faulthandler.register(STACKS_SIGNAL, file=sender.fd, all_threads=True, chain=False)
    try:
        from . import run_script
    except Exception as error:
        if sender is None:
            raise
        what = traceback.format_exception_only(error)[-1].strip()
        sender.failed(Failure((), time.monotonic(), "exit code 1", what, traceback.format_exc()))
        return 1
    return run_script.run(sender, kind, target, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
