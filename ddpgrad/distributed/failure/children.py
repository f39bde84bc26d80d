"""What the kernel does for the parent of a process: tells its end, and ends it when the parent dies.

Imports nothing of ddpgrad; see agent.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

from .channel import STACKS_SIGNAL

_PR_SET_PDEATHSIG = 1


def exit_status(pid: int) -> int | None:
    """The exit status of a child (negative: minus the signal), or None while it runs.

    The child stays a zombie, so that its number, and that of a group that it leads, cannot be
    given to a stranger.
    """
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


def send_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process `pid`, which leads a group, and to what it started and did not move away."""
    with contextlib.suppress(ProcessLookupError):  # nobody of the group is left
        os.killpg(pid, number)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process `pid`; the one that asks for stacks goes to its main thread.

    A stopped process that goes on handles that first. Another thread would write the stacks while the main
    thread goes on: into the handler of what else was sent, which is not where it stood.
    """
    library = ctypes.CDLL(None, use_errno=True) if number == STACKS_SIGNAL else None
    if library is None or not hasattr(library, "tgkill"):
        os.kill(pid, number)
    elif library.tgkill(pid, pid, number) != 0:
        raise OSError(ctypes.get_errno(), f"no signal reaches process {pid}")


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """Ask the kernel to send `number` to this process when its parent dies (Linux only)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request was made
        os.kill(os.getpid(), number)
