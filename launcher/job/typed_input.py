"""Standard input of the job: it goes to the process of rank 0, and what is typed at a terminal on a way of its own.

The ranks are no foreground processes of the terminal (see `popen_in_group`), and the kernel stops who reads it all the
same. So the launcher reads, and passes on.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
from typing import IO, Any

# So soon the terminal is looked at again, if it is not ours to read or the script does not read.
_LOOK_AGAIN_S = 0.25
_READ = 4096
_NEVER = float("inf")


def for_rank_0() -> int | None:
    """The `stdin` of rank 0's process for `subprocess.Popen`: the launcher's own, or a pipe where that is a terminal."""
    if sys.stdin is None:  # closed
        return subprocess.DEVNULL
    return subprocess.PIPE if os.isatty(0) else None


class TypedInput:
    """Passes on what is typed while the launcher is in the foreground, to the script's pipe `to`; None: to nobody."""

    def __init__(self, selector: selectors.BaseSelector, to: IO[Any] | None) -> None:
        self._selector = selector
        self._to = to
        self._waiting = b""
        self._reading = False
        if to is not None:
            os.set_blocking(to.fileno(), False)

    def prepare(self, now: float) -> float:
        """Listen to the terminal if that makes sense; returns when to call this again."""
        if self._to is None:
            return _NEVER
        self._write()
        wanted = self._to is not None and not self._waiting and _in_foreground()
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._selector.register(0, selectors.EVENT_READ, self._read)
            else:
                self._selector.unregister(0)
        return _NEVER if self._reading or self._to is None else now + _LOOK_AGAIN_S

    def close(self) -> None:
        """The script gets no more: it finds the end of its input."""
        if self._reading:
            self._reading = False
            self._selector.unregister(0)
        if self._to is not None:
            with contextlib.suppress(OSError):
                self._to.close()
            self._to = None

    def _read(self, fd: int) -> None:
        if not _in_foreground():
            return  # `prepare` stops listening
        try:
            self._waiting = os.read(fd, _READ)
        except OSError:  # the terminal is gone
            self._waiting = b""
        if not self._waiting:
            self.close()

    def _write(self) -> None:
        if self._to is None or not self._waiting:
            return
        try:
            with contextlib.suppress(BlockingIOError):  # the script does not read
                self._waiting = self._waiting[os.write(self._to.fileno(), self._waiting) :]
        except OSError:  # it has ended
            self.close()


def _in_foreground() -> bool:
    """Whether the launcher may read the terminal. In the background it would be stopped if it did."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # it is not the terminal of this session
        return False
