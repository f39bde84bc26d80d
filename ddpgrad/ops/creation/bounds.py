"""Bounds of drawn integers, as their dtype holds them."""

from __future__ import annotations

import functools

import numpy as np

from ...backend import dtype as dtypes
from ...core.errors import warn_program
from ...random.variates import DIGITS, largest_whole


@functools.cache
def _limits(kind: dtypes.DType) -> tuple[int, int, int]:
    """The least and the largest number of a dtype, and the largest of those in a row that are whole."""
    if kind.is_floating_point:
        largest = int(dtypes.finfo(kind).max)
        return -largest, largest, largest_whole(kind)
    if kind.category == 0:
        return 0, 1, 1
    info = np.iinfo(kind.numpy)
    return int(info.min), int(info.max), int(info.max)


def within(kind: dtypes.DType, low: int, high: int) -> tuple[int, int]:
    """Bounds of integers in [low, high) as `kind` holds them; `RuntimeError` for what is beyond all that it holds.

    Floating-point types do not hold all integers beyond 2**digits, of which a warning tells: there a bound that
    is rounded beyond itself becomes the number before (after) it, as in PyTorch.
    """
    least, largest, exact = _limits(kind)
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= largest:
            raise RuntimeError(
                f"{name} is out of bounds for {kind.name}: {value} is not in [{least}, {largest}]"
            )
        if kind.is_floating_point and not -exact <= value <= exact:
            warn_program(
                f"{name} is out of bounds [-{exact}, {exact}]. Due to precision limitations {kind.name} can support "
                "discrete uniform distribution only within this range.",
            )
    if kind.is_floating_point:
        digits = DIGITS[kind.name]
        after, before = int(float(kind.numpy.type(low + 1))), int(float(kind.numpy.type(high - 1)))
        if after < low:
            low = after + (1 << (abs(low + 1).bit_length() - digits))
        if before >= high:
            high = before - (1 << (abs(high - 1).bit_length() - digits))
        if low >= high:
            raise RuntimeError(
                f"random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from={low} >= to={high}"
            )
    return low, high
