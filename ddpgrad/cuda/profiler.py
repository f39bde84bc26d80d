"""`torch.cuda.profiler`: when Nsight Systems, which watches the process from outside, is to record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..backend.cuda import library


def start() -> None:
    """Let the profiler record from here on, where it was started with `--capture-range=cudaProfilerApi`."""
    cupy, _ = library.cupy_and_count()
    cupy.cuda.runtime.profilerStart()


def stop() -> None:
    """Let the profiler record no more."""
    cupy, _ = library.cupy_and_count()
    cupy.cuda.runtime.profilerStop()


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Let the profiler record a block."""
    start()
    try:
        yield
    finally:
        stop()


__all__ = ["profile", "start", "stop"]
