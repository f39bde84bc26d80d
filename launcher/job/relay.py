"""Forwards the output of the processes to the launcher's own streams, as fast as those are read."""

from __future__ import annotations

import functools
import os
import selectors
import time

from .logs import Logs
from .output import MixedSource, Nowhere, Outlet, Route, Source, own_outlets
from .screen import Screen
from .spawn import Child

_READ = 64 * 1024

# A process that has ended leaves at most a full pipe behind. Its own children may go on writing for ever.
_LAST_READS = 32


class Relay:
    """The output side of the launcher's event loop, on a selector that calls `key.data(fd)`."""

    def __init__(
        self, selector: selectors.BaseSelector, logs: Logs | None = None, screen: Screen | None = None
    ) -> None:
        """logs: keeps all output; screen: selects the output to show (default: all)."""
        self._logs = logs or Logs(None)
        self._screen = screen or Screen()
        self._selector = selector
        self._out, self._err = own_outlets()
        self._outlets = {self._out, self._err}
        self._sources: dict[int, Source] = {}
        self._reading: set[int] = set()
        self._writing: set[int] = set()

    def attach(self, child: Child) -> None:
        """Forward the output of `child` from its pipes; inherited streams need no forwarding."""
        streams = (child.popen.stdout, self._out, 1), (child.popen.stderr, self._err, 2)
        for stream, outlet, number in streams:
            if stream is not None:
                fd = stream.fileno()
                os.set_blocking(fd, False)
                if len(child.ranks) > 1:
                    route = functools.partial(self._route, child, outlet, number, {})
                    self._sources[fd] = MixedSource(fd, outlet, child.prefix, route)
                else:
                    to, log = self._way(child.ranks, outlet, number)
                    self._sources[fd] = Source(fd, to, child.prefix, log)

    def _way(self, ranks: range, outlet: Outlet, number: int) -> Route:
        """The outlet and the log of the stream `number` of `ranks`."""
        log = self._logs.of(ranks) if self._screen.kept(ranks, number) else None
        return outlet if self._screen.shows(ranks, number) else Nowhere(), log

    def _route(
        self, child: Child, outlet: Outlet, number: int, known: dict[int | None, Route], rank: int | None
    ) -> Route:
        """The outlet and the log of a line of `rank`. A line without a rank is shown, and kept in the file of the child."""
        if rank not in known:
            if rank is None or rank not in child.ranks:
                known[rank] = outlet, self._logs.of(child.ranks)
            else:
                known[rank] = self._way(range(rank, rank + 1), outlet, number)
        return known[rank]

    def detach(self, child: Child) -> None:
        """Forward the rest of the output of `child`, which has ended, and close its pipes."""
        for stream in (child.popen.stdout, child.popen.stderr):
            if stream is not None:
                for _ in range(_LAST_READS):
                    if stream.fileno() not in self._sources or not self._read(stream.fileno()):
                        break
                self._drop(stream.fileno())
                stream.close()

    def say(self, text: str) -> None:
        """Print a message of the launcher on standard error, on a line of its own, and keep it."""
        self._logs.note(text)
        data = self._err.lines.close() + text.encode(errors="replace")
        self._err.put(data)

    @property
    def waiting(self) -> bool:
        """Whether output is waiting for a reader."""
        return any(outlet.waiting for outlet in self._outlets)

    @property
    def broken(self) -> str:
        """Why the launcher's output cannot be written any more; '' where it can."""
        return next((outlet.broken for outlet in (self._out, self._err) if outlet.broken), "")

    def prepare(self) -> float:
        """Show lines that stayed unfinished, register the events to wait for, and return the latest time to wake up.

        While an outlet is full, its sources are not read: the ranks then wait in their own writes, as they
        would before a slow terminal.
        """
        now = time.monotonic()
        for source in self._sources.values():
            if source.stale_at is not None and source.stale_at <= now:
                source.flush()
        for fd, source in self._sources.items():
            self._register(self._reading, fd, not source.outlet.full, selectors.EVENT_READ)
        for outlet in self._outlets:
            self._register(self._writing, outlet.fd, outlet.waiting, selectors.EVENT_WRITE)
        stale = (source.stale_at for source in self._sources.values())
        return min((when for when in stale if when is not None), default=float("inf"))

    def _register(self, registered: set[int], fd: int, wanted: bool, event: int) -> None:
        if wanted and fd not in registered:
            registered.add(fd)
            self._selector.register(fd, event, self._read if event == selectors.EVENT_READ else self._write)
        elif not wanted and fd in registered:
            registered.remove(fd)
            self._selector.unregister(fd)

    def _read(self, fd: int) -> bool:
        """Read once; False when there is nothing to read, now or ever again."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if data:
            self._sources[fd].feed(data)
        else:
            self._drop(fd)
        return bool(data)

    def _write(self, fd: int) -> None:
        for outlet in self._outlets:
            if outlet.fd == fd:
                outlet.pump()

    def _drop(self, fd: int) -> None:
        source = self._sources.pop(fd, None)
        if source is not None:
            source.flush()
            self._register(self._reading, fd, False, selectors.EVENT_READ)
