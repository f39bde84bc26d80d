"""A rank that keeps those of its process waiting beyond the limit. They have no baton to say so: the main thread does."""

from __future__ import annotations

import sys
import time
import traceback
from types import FrameType

from ...core.errors import StallError
from ..failure.phase import users_line
from ..protocol import guard, progress
from ..transports.base import limit
from .baton import Baton, Slot, State


def late(baton: Baton) -> tuple[int, StallError] | None:
    """A rank that waits, by its place in the process, and its error: the holder has kept it waiting for too long."""
    holder, kept = baton.holder, time.monotonic() - baton.entered_at
    if holder is None or baton.states[holder] is not State.RUNS:
        return None
    # Also of a rank that could go on, and would come to its next collective if it had its turn.
    limits = {
        i: state.limit if isinstance(state, Slot) else limit(None)
        for i, state in enumerate(baton.states)
        if isinstance(state, Slot) or state is State.ASKS
    }
    waiting = [i for i in limits if kept > limits[i]]
    if not waiting:
        return None
    frames = _frames(baton.idents[holder])
    if any(_package(frame) in ("bdb", "pdb", "pydevd") for frame in frames):
        return None  # somebody looks at it in a debugger, as long as they like
    rank = baton.ranks[holder]
    known = progress.hosted().get(rank)
    last = known.last_fields() if known is not None else ()
    error = guard.stalled({rank: last}, baton.waiting(), limits[waiting[0]])
    error.where = users_line((frame.f_code.co_filename, frame.f_lineno) for frame in frames)
    return waiting[0], error


def _frames(ident: int) -> list[FrameType]:
    """The frames of that thread, the innermost first."""
    frame = sys._current_frames().get(ident)
    return [] if frame is None else [frame for frame, _ in traceback.walk_stack(frame)]


def _package(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]
