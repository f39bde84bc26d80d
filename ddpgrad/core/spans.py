"""Spans: named stretches of a rank's time, passed on to recorders if there are any.

Whoever has something to tell asks `if spans.recorders:` first, so that it costs 20 ns where
nobody listens. `distributed/trace/recorder.py` records whole runs, `profiler/recording.py` a part of one rank.
"""

from __future__ import annotations

import threading
from time import monotonic as now
from typing import Any, NamedTuple, Protocol, cast

from . import rank_local

__all__ = ["Recorder", "Span", "detailed", "mark", "now", "recorders", "tell", "tell_detail", "wait_for"]

PROGRAM, COMMUNICATION = 0, 1
"""Tracks: what the rank's own thread does, and what is on its way to other ranks."""


long_waits: dict[int | None, str] = {}
"""What ranks wait for, as `wait_for` was told. None: the only rank."""


class Span(NamedTuple):
    """From `began` to `ended`, in seconds of `now`; a mark has no length.

    kind: "loader", "forward", "backward", "optimizer", "communication", "waiting", "ready" or "user".
    Those of one op, node or collective call, of kind "op", "node" or "collective", are only for recorders that want
    them. rank: None for the only
    rank of a process.
    """

    rank: int | None
    track: int
    kind: str
    name: str
    began: float
    ended: float
    details: dict[str, Any] | None = None


class Recorder:
    """Keeps the spans of this process: of all ranks, or of one.

    detailed: whether it wants those of single ops and nodes of backward, too.
    """

    detailed = False

    def __init__(self, rank: int | None = None) -> None:
        self.rank = rank
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        if self.rank is None or span.rank == self.rank:
            self.spans.append(span)


recorders: tuple[Recorder, ...] = ()
detailed: tuple[Recorder, ...] = ()
"""Those of the recorders that want single ops and nodes."""
_lock = threading.Lock()


class _Ranked(Protocol):
    rank: int


def _set(chosen: tuple[Recorder, ...]) -> None:
    global recorders, detailed
    recorders = chosen
    detailed = tuple(recorder for recorder in chosen if recorder.detailed)


def attach(recorder: Recorder) -> None:
    """Let `recorder` hear of all spans that end from now on."""
    with _lock:
        _set((*recorders, recorder))


def detach(recorder: Recorder) -> None:
    """Undo `attach`."""
    with _lock:
        _set(tuple(other for other in recorders if other is not recorder))


def caller() -> int | None:
    """The rank that the calling thread acts for, where a process hosts several."""
    key = rank_local.bound()
    return None if key is None else cast(_Ranked, key).rank


def wait_for(what: str | None) -> None:
    """The calling rank waits longer than a moment for `what`, of which its stack does not say enough; None: no more."""
    if what is not None:
        long_waits[caller()] = what
    elif long_waits:
        long_waits.pop(caller(), None)


def tell(kind: str, name: str, began: float, track: int = PROGRAM, **details: Any) -> None:
    """The calling rank did `name` since `began`."""
    span = Span(caller(), track, kind, name, began, now(), details or None)
    for recorder in recorders:
        recorder.add(span)


def tell_detail(kind: str, name: str, began: float, track: int = PROGRAM, **details: Any) -> None:
    """As `tell`, of what only detailed recorders want."""
    span = Span(caller(), track, kind, name, began, now(), details or None)
    for recorder in detailed:
        recorder.add(span)


def mark(kind: str, name: str, **details: Any) -> None:
    """Something happened at this moment."""
    tell(kind, name, now(), **details)
