"""The output of the ranks on its way to the launcher's own streams: whole lines, each marked with its rank."""

from __future__ import annotations

import errno
import os
import re
import select
import time
from collections.abc import Callable, Hashable

# Text up to and including the end of a line. A lone carriage return ends one, too, as a progress bar
# prints it to start over.
_PIECE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")

# How a process marks the lines of its ranks.
_MARK = re.compile(rb"\[rank (\d+)\] ")

# A longer line is shown in parts, so that it cannot fill the launcher's memory.
MAX_LINE = 64 * 1024

# An unfinished line is shown after this long without news.
_PARTIAL_LINE_S = 0.1

# When more output waits for a slow reader, the ranks' pipes are no longer read.
_MAX_WAITING = 1024 * 1024

# A pipe that is writable takes this much without blocking (POSIX: at least 512).
_ATOMIC = select.PIPE_BUF


class Lines:
    """Marks each line with its source, and never lets two sources share a line."""

    def __init__(self) -> None:
        self._open: Hashable = None  # whose unfinished line is on the screen
        self._at_start = True  # ... and whether it is still empty (after a carriage return)

    def mark(self, source: Hashable, prefix: bytes, data: bytes) -> bytes:
        """Return `data`, printed by `source`, with `prefix` before each line that has none yet."""
        out = []
        for piece in _PIECE.findall(data):
            if self._open is not None and self._open != source:
                out.append(b"\n")
                self._open, self._at_start = None, True
            ends = piece.endswith(b"\n")
            # The line break after an already marked line, or a bar's first return, needs no mark.
            bare = piece == b"\r" or (piece == b"\n" and self._open is not None)
            if self._at_start and not bare:
                out.append(b"" if piece.startswith(b"[rank ") else prefix)
            out.append(piece)
            self._open = None if ends else source
            self._at_start = ends or piece.endswith(b"\r")
        return b"".join(out)

    def close(self) -> bytes:
        """The bytes that end the open line, if there is one."""
        open_, self._open, self._at_start = self._open, None, True
        return b"" if open_ is None else b"\n"


class Outlet:
    """One of the launcher's own streams. Writing never blocks, so that supervision goes on before a slow reader."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.lines = Lines()
        self.broken = ""
        """Why nothing can be written any more, as the reader has gone away or the disk is full; later output is lost."""
        self._waiting = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) > _MAX_WAITING

    def put(self, data: bytes) -> None:
        self._waiting += data
        self.pump()

    def pump(self) -> None:
        """Write as much as the reader takes now."""
        written = 0
        try:
            while written < len(self._waiting) and self._poll.poll(0):
                written += os.write(self.fd, self._waiting[written : written + _ATOMIC])
        except BlockingIOError:  # somebody has set the reader's end so; poll tells when it takes more
            pass
        except OSError as error:
            # EIO: the terminal was closed.
            gone = error.errno in (errno.EPIPE, errno.EIO)
            self.broken = (
                "nobody reads the output any more" if gone else f"the output cannot be written ({error})"
            )
        if self.broken:
            self._waiting.clear()
        else:
            del self._waiting[:written]


class Nowhere:
    """An outlet for output that is not shown."""

    full = False

    def __init__(self) -> None:
        self.lines = Lines()

    def put(self, data: bytes) -> None:
        """Drop `data`."""


class Source:
    """One stream of one process: gathers whole lines for an outlet."""

    def __init__(
        self, fd: int, outlet: Outlet | Nowhere, prefix: str, log: Callable[[bytes], None] | None = None
    ) -> None:
        """log: called with all data of the stream, as it comes."""
        self.fd = fd
        self.outlet = outlet
        self._prefix = prefix.encode()
        self._log = log
        self._partial = b""
        self._fed_at = 0.0

    @property
    def stale_at(self) -> float | None:
        """The time (monotonic seconds) to show an unfinished line as it is; None without one."""
        return self._fed_at + _PARTIAL_LINE_S if self._partial else None

    def feed(self, data: bytes) -> None:
        if self._log is not None:
            self._log(data)
        whole, newline, rest = (self._partial + data).rpartition(b"\n")
        self._partial, self._fed_at = rest, time.monotonic()
        if newline:
            self._put(whole + newline)
        if len(rest) > MAX_LINE:
            self.flush()

    def flush(self) -> None:
        """Show the unfinished line: a prompt, a progress bar, or a very long line."""
        data, self._partial = self._partial, b""
        self._put(data)

    def _put(self, data: bytes) -> None:
        self.outlet.put(self.outlet.lines.mark(self, self._prefix, data))


class MixedSource(Source):
    """A stream that several ranks share, each line marked with the one that prints it (see rank_stream.py).

    route: the outlet and the log for the lines of a rank; for None, of lines without a rank, such as mpiexec's.
    """

    def __init__(
        self, fd: int, outlet: Outlet | Nowhere, prefix: str, route: Callable[[int | None], Route]
    ) -> None:
        super().__init__(fd, outlet, prefix)
        self._route = route

    def _put(self, data: bytes) -> None:
        for line in data.splitlines(keepends=True):
            match = _MARK.match(line)
            outlet, log = self._route(int(match[1]) if match else None)
            if log is not None:
                log(line[match.end() :] if match else line)
            outlet.put(outlet.lines.mark(self, self._prefix, line))


Route = tuple["Outlet | Nowhere", "Callable[[bytes], None] | None"]


def own_outlets() -> tuple[Outlet, Outlet]:
    """Outlets for standard output and error: one and the same where both lead to the same place."""
    out = Outlet(1)
    same = os.path.samestat(os.fstat(1), os.fstat(2))
    return out, out if same else Outlet(2)
