"""Child processes: their exit status, signals to their groups, and their end when the parent dies.

Imports the standard library only; see agent.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def exit_status(pid: int) -> int | None:
    """The exit status of a child (negative: minus the signal), or None while it runs.

    The child stays a zombie. So the kernel gives its number, and that of a group that it leads, to no
    other process.
    """
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


def send_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process `pid`, which leads a group, and to its descendants in that group."""
    with contextlib.suppress(ProcessLookupError):  # the group is empty
        os.killpg(pid, number)


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Ask the kernel to send `number` to this process when its parent dies (Linux only)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request was made
        os.kill(os.getpid(), number)
