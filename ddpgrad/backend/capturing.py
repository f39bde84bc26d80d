"""Whether the calling thread captures a CUDA graph: see `cuda/capture.py`, which this spares others to load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cuda.capture import Capture


class _Active(threading.local):
    """now: the capture of the calling thread, if any."""

    now: Capture | None = None


active = _Active()


THROUGH_HOST = (
    "goes through host memory, which a CUDA graph does not touch; with the backend 'nccl', and a process and a GPU for each "
    "rank, it can be part of one"
)
"""The end of an error about data between ranks."""


def on_failure(undo: Callable[[], None]) -> None:
    """Have `undo` called if this thread captures and the capture fails: what was begun will not be ended."""
    if active.now is not None:
        active.now.undo.append(undo)


forgets: list[Callable[[], None]] = []
"""Called where a capture begins and where it ends: what keeps arrays between ops lets go of them."""
