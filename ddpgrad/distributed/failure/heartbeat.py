"""The heartbeat of a process: several times a second it reports the progress of its ranks to the launcher.

A thread sends it. So a process that is stopped, or holds the interpreter lock, sends none; a process in an
endless loop goes on sending, but its counters do not change. The launcher judges both (`watchdog.py`).
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Mapping
from functools import cache
from typing import Any

from ...core import environment, rank_local, spans
from ...optim.optimizer import register_optimizer_step_post_hook
from ..protocol import progress
from .channel import Sender, heartbeat_s
from .phase import users_line

# The memory of the process is measured so often.
_MEASURE_S = 1.0


def start(sender: Sender) -> None:
    """Begin to send the heartbeat of this process, and to tell of its meetings."""
    count_steps()
    progress.meeting_observer = _Meetings(sender)
    thread = threading.Thread(target=_run, args=(sender,), name="ddprun heartbeat", daemon=True)
    # It takes no lock that a forked copy of the process could wait for, so a loader's workers may be forked.
    thread.__dict__["holds_no_lock"] = True
    thread.start()


class _Meetings:
    """Tells the launcher of meetings; once that has ended, this process ends, too."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def begins(self, name: str, limit: float) -> None:
        where = users_line((frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None))
        with contextlib.suppress(OSError):
            self._sender.meeting(name, where, limit)

    def ends(self) -> None:
        with contextlib.suppress(OSError):
            self._sender.meeting("")


@cache
def count_steps() -> None:
    """Begin to count the optimizer steps that the ranks of this process finish. May be called again."""
    register_optimizer_step_post_hook(_count_step)


def alive() -> None:
    """Tell `ddprun --watchdog` that this rank still works, where it takes no step and calls no collective.

    For long evaluations and preparations. It costs less than a microsecond, so call it often.
    """
    mine = _mine()
    if mine is not None:
        mine.signs += 1


def report(step: int, numbers: Mapping[str, float]) -> None:
    """Let the launcher know what this rank has logged; of each name it keeps the latest."""
    mine = _mine()
    if mine is not None:
        mine.logged = step, {**(mine.logged[1] if mine.logged else {}), **numbers}


def _mine() -> progress.Progress | None:
    hosted = progress.hosted()
    key = rank_local.bound()
    if key is not None:
        return hosted.get(getattr(key, "rank", -1))
    return next(iter(hosted.values())) if len(hosted) == 1 else None


def _count_step(*_: Any) -> None:
    mine = _mine()
    if mine is not None:
        mine.steps += 1


def _run(sender: Sender) -> None:
    reported: dict[int, int] = {}
    logged: dict[int, object] = {}
    memory, measured_at = progress.memory(), time.monotonic()
    pause, interval = threading.Event(), heartbeat_s(environment.launch().world_size)
    while True:
        if time.monotonic() - measured_at >= _MEASURE_S:
            memory, measured_at = progress.memory(), time.monotonic()
        for rank, state in progress.hosted().items():
            count = state.collectives
            new = min(count - reported.get(rank, 0), progress.KEPT)
            last = state.last()[-new:] if new else []
            reported[rank] = count
            try:
                counters, waited = (count, state.steps, state.signs), progress.waits.seconds()
                waits_for = spans.long_waits.get(rank) or spans.long_waits.get(None, "")
                sender.heartbeat(rank, counters, last, waited, rank == progress.turn, waits_for, memory)
                if (new_numbers := state.logged) is not None and new_numbers is not logged.get(rank):
                    logged[rank] = new_numbers
                    sender.logged(rank, *new_numbers)
            except OSError:
                return  # the launcher has ended, and with it ends this process
        pause.wait(interval)
