"""The progress of each rank of this process: its last collectives and steps, for heartbeats and failure reports.

A rank has three counters and a ring of signatures. Noting a collective costs some 100 ns. Waiting is
counted only where it takes longer than a look or two.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from .guard import Signature

KEPT = 20
"""How many collectives of a rank are remembered."""


class _Within(NamedTuple):
    """A collective of a group that is not the whole world, which `group` names."""

    what: Signature | str
    group: str

    def __str__(self) -> str:
        return f"{self.what}, in {self.group}"


class Progress:
    """The progress of one rank.

    collectives   how many collectives and messages it has begun
    steps         how many optimizer steps it has finished (counted by who registers the hook)
    signs         how often the program has called `alive`
    logged        the latest numbers that it has logged by their names, and the latest step; replaced as a whole
    """

    __slots__ = ("_ring", "collectives", "logged", "signs", "steps")

    def __init__(self) -> None:
        self.collectives = self.steps = self.signs = 0
        self.logged: tuple[int, Mapping[str, float]] | None = None
        self._ring: deque[Signature | str | _Within] = deque(maxlen=KEPT)

    def note(self, what: Signature | str) -> None:
        """The rank begins `what`."""
        self.collectives += 1
        self._ring.append(what)

    def noting(self, group: str) -> Callable[[Signature | str], None]:
        """`note` for what the rank begins in `group`."""

        def note(what: Signature | str) -> None:
            self.collectives += 1
            self._ring.append(_Within(what, group))

        return note

    def last_fields(self) -> Sequence[str]:
        """The last collective that it began, as `guard` words it; () for none, and for a message."""
        last = self._ring[-1] if self._ring else None
        last = last.what if isinstance(last, _Within) else last
        return last.fields if isinstance(last, Signature) else ()

    def last(self) -> list[str]:
        """The last collectives that it began, in words, the newest at the end."""
        return [str(what) for what in self._ring.copy()]


class Waits:
    """How long this process has waited for others to come to collectives.

    Where two of its threads wait at once, the time counts from the later beginning to the earlier end.
    """

    __slots__ = ("_since", "_total")

    def __init__(self) -> None:
        self._since: float | None = None
        self._total = 0.0

    def begin(self, now: float) -> None:
        """A wait begins at `now`, on the monotonic clock."""
        self._since = now

    def end(self) -> None:
        """It is over."""
        since, self._since = self._since, None
        if since is not None:
            self._total += time.monotonic() - since

    def seconds(self) -> float:
        """The sum of all waits, the present one included."""
        since = self._since
        return self._total + (time.monotonic() - since if since is not None else 0.0)


waits = Waits()


class MeetingObserver(Protocol):
    """Who is told of the meetings of all processes, before this one waits in one.

    It can end the job when a process has ended that the others wait for. A library that waits in native code
    may let no other thread of this process speak meanwhile.
    """

    def begins(self, name: str, limit: float) -> None:
        """This process begins to wait for all others, for `limit` seconds, in the meeting that all of them call `name`."""

    def ends(self) -> None:
        """They have met, or the meeting has failed."""


meeting_observer: MeetingObserver | None = None


@contextlib.contextmanager
def meeting(name: str, limit: float) -> Iterator[None]:
    """Around the meeting `name` of all processes of the world, which wait `limit` seconds for each other."""
    told = meeting_observer
    if told is not None:
        told.begins(name, limit)
    try:
        yield
    finally:
        if told is not None:
            told.ends()


_hosted: dict[int, Progress] = {}

turn: int | None = None
"""The rank that runs, where several share this process."""


def begin(rank: int) -> Progress:
    """Start to keep the progress of `rank`, which this process hosts."""
    found = _hosted[rank] = Progress()
    return found


def end(rank: int) -> None:
    """This process no longer hosts `rank`."""
    _hosted.pop(rank, None)


def hosted() -> dict[int, Progress]:
    """The progress of the ranks of this process, by rank."""
    return dict(_hosted)


def memory() -> tuple[int | None, int | None]:
    """The bytes that this process takes of the machine's memory, and of GPUs; None where that is not known, or is nothing."""
    try:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        resident = None
    if "cupy" not in sys.modules:
        return resident, None
    from ...cuda.memory import held  # here, as most processes use no GPU

    return resident, held() or None
