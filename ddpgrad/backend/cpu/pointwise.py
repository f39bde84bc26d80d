"""A compiled choice between two arrays for the CPU, float32 and float64, without a branch for each element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..layout import beside
from .threads import shared
from .vectormath import compiled_for, kernel

Array = np.ndarray[Any, Any]

# Below this many elements NumPy is done before a compiled kernel has started.
_SMALL = 1024


def where(condition: Array, input: Any, other: Any) -> Array:
    """input where condition (bool), elsewhere other: arrays of the condition's shape, at most one of them a number."""
    if condition.size < _SMALL or condition.dtype != bool:
        return NotImplemented
    full = [x for x in (input, other) if isinstance(x, np.ndarray)]
    if not full or not compiled_for(*full) or any(x.shape != condition.shape for x in full):
        return NotImplemented
    dtype = full[0].dtype
    out, flat, vectors = beside(dtype, condition, *full)
    if len(full) == 2:
        _where(*vectors, flat)
    elif full[0] is input:
        _where_first(*vectors, dtype.type(other), flat)
    else:
        _where_second(vectors[0], dtype.type(input), vectors[1], flat)
    return out


@shared("condition", "a", "b", "out")
@kernel
def _where(condition, a, b, out):
    for i in range(out.size):
        out[i] = a[i] if condition[i] else b[i]


@shared("condition", "a", "out")
@kernel
def _where_first(condition, a, number, out):
    for i in range(out.size):
        out[i] = a[i] if condition[i] else number


@shared("condition", "b", "out")
@kernel
def _where_second(condition, number, b, out):
    for i in range(out.size):
        out[i] = number if condition[i] else b[i]
