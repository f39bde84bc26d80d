"""Warm spares: processes that have loaded what the ranks have, and wait to become those of the next attempt."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import dataclass, replace
from typing import Any

from . import spawn
from .plan import Plan
from .spawn import Child

# So that the launcher need not wait for a spare that is busy loading.
_PIPE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Spare:
    child: Child
    control: int
    """The launcher's end of its pipe; see preloading.py."""

    def tell(self, *words: Any) -> None:
        os.write(self.control, json.dumps(words).encode() + b"\n")

    def end(self) -> None:
        os.close(self.control)
        self.child.abandon()


class Spares:
    """Up to `plan.spares` of them, each of which may be the process of its number in the next attempt."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Spare] = {}

    def prepare(self, plan: Plan, modules: list[str], kernels: str) -> None:
        """Start those that are missing, which load `modules` and `kernels`, if there may be another attempt."""
        wanted = min(plan.spares, plan.procs) if plan.restart_count < plan.max_restarts else 0
        for proc in range(wanted):
            if proc not in self._waiting:
                receiving, control = os.pipe()
                fcntl.fcntl(control, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
                try:
                    child = spawn.start_process(plan, proc, spare=receiving)
                finally:
                    os.close(receiving)
                self._waiting[proc] = spare = _Spare(child, control)
                with contextlib.suppress(BrokenPipeError):  # it has ended, and `take` finds out
                    spare.tell(modules, kernels)

    def take(self, plan: Plan, proc: int) -> Child | None:
        """Let the spare of that number, if there is one, be the process `proc` of `plan`."""
        spare = self._waiting.pop(proc, None)
        if spare is None:
            return None
        try:
            spare.tell(plan.environment(proc), plan.program)
        except BrokenPipeError:
            spare.end()
            return None
        os.close(spare.control)
        ranks = plan.ranks(proc)
        return replace(spare.child, ranks=ranks, prefix=spawn.prefix(plan, ranks))

    def close(self) -> None:
        """End those that wait."""
        for spare in self._waiting.values():
            spare.end()
        self._waiting.clear()
