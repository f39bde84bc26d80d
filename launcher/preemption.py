"""Signals that ask the ranks to save their work and end: SIGTERM, SIGINT, and Slurm's SIGUSR1.

In a program that calls `requested()` after each step, such a signal sets a flag instead of ending the
process. In any other program these signals have their usual effect.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, NoReturn

from ddpgrad.core import environment, rank_local
from ddpgrad.distributed.failure import exit_codes
from ddpgrad.distributed.failure.channel import Sender

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

saved_step: int | None = None
"""The step whose checkpoint was saved before the ranks ended on request; None while they run."""

# Slurm preempts with several signals: to the processes of a step, to their agents, which pass it on, and to the batch file.
_ONE_REQUEST_S = 10.0

_flag = False
_flagged_at = 0.0
_asked = False  # whether the program ever asked for the flag
_callers: set[object] = set()  # the ranks of this process that asked for it
_sender: Sender | None = (
    None  # to the launcher; then run_script.py turns an end on request into the exit code
)
_previous: dict[int, Any] = {}
_pid = 0


class Preempted(SystemExit):
    """The ranks have saved a checkpoint, as a signal asked them to, and the script ends here."""


def prepare(sender: Sender | None) -> None:
    """Called by run_script.py, in the main thread. sender: by which it reports the outcome of the script to the launcher."""
    global _sender
    _sender = sender
    _install()


def requested() -> bool:
    """Whether a signal asked this process to save its work and end. From the first call on, signals set this flag."""
    global _asked
    if (rank := rank_local.bound()) not in _callers:
        _callers.add(rank)
        if _sender is not None and len(_callers) == len(environment.launch().ranks):
            _sender.saves()
        if not _asked and threading.current_thread() is threading.main_thread():
            _install()
        _asked = True
    return _flag


def end(step: int) -> NoReturn:
    """Leave the script; its work up to `step` is saved."""
    global saved_step
    saved_step = step
    # Under ddprun the rank exits with 0, and its process reports the preemption; alone, the exit code must.
    raise Preempted(0 if _sender is not None else exit_codes.PREEMPTED)


def _install() -> None:
    global _pid
    if _pid == os.getpid():
        return
    _pid = os.getpid()
    for number in SIGNALS:
        # A handler of the script's own stays, and so does an ignored signal.
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            _previous[number] = signal.signal(number, _note)


def _note(number: int, frame: FrameType | None) -> None:
    global _flag, _flagged_at
    # In a forked worker the flag is of no use.
    if _asked and os.getpid() == _pid:
        if _flag and number != signal.SIGINT and time.monotonic() < _flagged_at + _ONE_REQUEST_S:
            return
        if _flag:
            print("a second signal: the script ends without saving", file=sys.stderr)
            _as_before(number, frame)
        _flag, _flagged_at = True, time.monotonic()
    else:
        _as_before(number, frame)


def _as_before(number: int, frame: FrameType | None) -> None:
    handler = _previous[number]
    if callable(handler):
        handler(number, frame)
        return
    signal.signal(number, handler)
    os.kill(os.getpid(), number)
