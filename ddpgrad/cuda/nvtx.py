"""`torch.cuda.nvtx`: ranges that Nsight Systems shows above the kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..backend.cuda import library


def range_push(msg: str) -> None:
    """Begin a labelled range, within the ranges that this thread has begun."""
    cupy, _ = library.cupy_and_count()
    cupy.cuda.nvtx.RangePush(msg)


def range_pop() -> None:
    """End the range begun last."""
    cupy, _ = library.cupy_and_count()
    cupy.cuda.nvtx.RangePop()


def mark(msg: str) -> None:
    """Label this moment."""
    cupy, _ = library.cupy_and_count()
    cupy.cuda.nvtx.Mark(msg)


def range_start(msg: str) -> int:
    """Begin a labelled range that may end in another order, or thread; the number by which `range_end` knows it."""
    cupy, _ = library.cupy_and_count()
    return cupy.cuda.nvtx.RangeStart(msg)


def range_end(range_id: int) -> None:
    """End the range that `range_start` has numbered so."""
    cupy, _ = library.cupy_and_count()
    cupy.cuda.nvtx.RangeEnd(range_id)


@contextlib.contextmanager
def range(msg: str) -> Iterator[None]:
    """Label a block."""
    range_push(msg)
    try:
        yield
    finally:
        range_pop()


__all__ = ["mark", "range", "range_pop", "range_push"]
