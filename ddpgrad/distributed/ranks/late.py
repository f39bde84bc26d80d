"""A rank that keeps those of its process waiting beyond the limit. They have no baton to say so: the main thread does."""

from __future__ import annotations

import sys
import time
import traceback
from types import FrameType

from ...core.errors import StallError
from ..failure.phase import users_line
from ..protocol import guard, progress
from .baton import Baton, Slot, State


def late(baton: Baton) -> tuple[int, StallError] | None:
    """A rank that waits, by its place in the process, and its error: the holder has kept it waiting for too long."""
    holder, kept = baton.holder, time.monotonic() - baton.entered_at
    if holder is None or baton.states[holder] is not State.RUNS:
        return None
    slots = {i: state for i, state in enumerate(baton.states) if isinstance(state, Slot)}
    waiting = [i for i, slot in slots.items() if slot.calls.get(holder, slot) is None and kept > slot.limit]
    frames = _frames(baton.idents[holder])
    if not waiting or any(_package(frame) in ("bdb", "pdb", "pydevd") for frame in frames):
        return None  # somebody looks at it in a debugger, as long as they like
    rank = baton.ranks[holder]
    known = progress.hosted().get(rank)
    last = known.last_fields() if known is not None else ()
    error = guard.stalled({rank: last}, baton.waiting(), slots[waiting[0]].limit)
    error.where = users_line((frame.f_code.co_filename, frame.f_lineno) for frame in frames)
    return waiting[0], error


def _frames(ident: int) -> list[FrameType]:
    """The frames of that thread, the innermost first."""
    frame = sys._current_frames().get(ident)
    return [] if frame is None else [frame for frame, _ in traceback.walk_stack(frame)]


def _package(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]
