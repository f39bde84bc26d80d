"""The signal that asks a process for the stacks of its threads, and how it is sent.

Imports the standard library only, as the launcher's agents (`launcher/job/agent.py`) must stay small.
"""

from __future__ import annotations

import ctypes
import os
import signal

STACKS_SIGNAL = signal.SIGQUIT
"""A process answers this signal with the stacks of its threads."""


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process `pid`. STACKS_SIGNAL goes to its main thread.

    A stopped process that continues handles STACKS_SIGNAL first. Another thread would write the stacks while
    the main thread runs on, into the handler of the next signal: the stacks would not show where it stood.
    """
    library = ctypes.CDLL(None, use_errno=True) if number == STACKS_SIGNAL else None
    if library is None or not hasattr(library, "tgkill"):
        os.kill(pid, number)
    elif library.tgkill(pid, pid, number) != 0:
        raise OSError(ctypes.get_errno(), f"no signal reaches process {pid}")
