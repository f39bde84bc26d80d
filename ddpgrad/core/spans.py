"""Spans: named stretches of a rank's time, passed on to recorders if there are any.

Whoever has something to tell asks `if spans.recorders:` first, so that it costs 20 ns where
nobody listens. `distributed/trace/recorder.py` records whole runs, `profiler.profile` a part of one rank.
"""

from __future__ import annotations

import threading
from time import monotonic as now
from typing import Any, NamedTuple, Protocol, cast

from . import rank_local

__all__ = ["Recorder", "Span", "mark", "now", "recorders", "tell"]

PROGRAM, COMMUNICATION = 0, 1
"""Tracks: what the rank's own thread does, and what is on its way to other ranks."""


class Span(NamedTuple):
    """From `began` to `ended`, in seconds of `now`; a mark has no length.

    kind: "loader", "forward", "backward", "optimizer", "communication", "waiting", "ready" or "user".
    rank: None for the only rank of a process.
    """

    rank: int | None
    track: int
    kind: str
    name: str
    began: float
    ended: float
    details: dict[str, Any] | None = None


class Recorder:
    """Keeps the spans of this process: of all ranks, or of one."""

    def __init__(self, rank: int | None = None) -> None:
        self.rank = rank
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        if self.rank is None or span.rank == self.rank:
            self.spans.append(span)


recorders: tuple[Recorder, ...] = ()
_lock = threading.Lock()


class _Ranked(Protocol):
    rank: int


def attach(recorder: Recorder) -> None:
    """Let `recorder` hear of all spans that end from now on."""
    global recorders
    with _lock:
        recorders = (*recorders, recorder)


def detach(recorder: Recorder) -> None:
    """Undo `attach`."""
    global recorders
    with _lock:
        recorders = tuple(other for other in recorders if other is not recorder)


def caller() -> int | None:
    """The rank that the calling thread acts for, where a process hosts several."""
    key = rank_local.bound()
    return None if key is None else cast(_Ranked, key).rank


def tell(kind: str, name: str, began: float, track: int = PROGRAM, **details: Any) -> None:
    """The calling rank did `name` since `began`."""
    span = Span(caller(), track, kind, name, began, now(), details or None)
    for recorder in recorders:
        recorder.add(span)


def mark(kind: str, name: str, **details: Any) -> None:
    """Something happened at this moment."""
    tell(kind, name, now(), **details)
