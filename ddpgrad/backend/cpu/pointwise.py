"""A compiled choice between two arrays for the CPU, float32 and float64, without a branch for each element."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    out = np.empty(condition.shape, full[0].dtype)
    loop = _where if len(full) == 2 else _where_first if full[0] is input else _where_second
    loop(_flat(condition), _flat(input, out.dtype), _flat(other, out.dtype), out.reshape(-1))
    return out


def _flat(x: Any, dtype: Any = None) -> Any:
    """An array as a vector; a number in `dtype`."""
    return np.ascontiguousarray(x).reshape(-1) if isinstance(x, np.ndarray) else dtype.type(x)


@kernel
def _where(condition, a, b, out):
    for i in range(out.size):
        out[i] = a[i] if condition[i] else b[i]


@kernel
def _where_first(condition, a, number, out):
    for i in range(out.size):
        out[i] = a[i] if condition[i] else number


@kernel
def _where_second(condition, number, b, out):
    for i in range(out.size):
        out[i] = number if condition[i] else b[i]
