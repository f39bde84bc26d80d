"""Running sums, products and extremes along one dimension, compiled for the CPU: float32 and float64.

Sums and products are carried in float64, as PyTorch's are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from .half import cast, is_half
from .threads import shared
from .vectormath import _OPTIONS, cached, compiled_for, kernel

Array = np.ndarray[Any, Any]

# Below this many elements NumPy is done before a compiled kernel has started.
_SMALL = 1024


def cumsum(input: Array, dim: int, dtype: Any = None) -> Array:
    """The running sum along `dim`."""
    return _running(_sums, input, dim, dtype)


def cumprod(input: Array, dim: int, dtype: Any = None) -> Array:
    """The running product along `dim`."""
    return _running(_products, input, dim, dtype)


def running_position(input: Array, dim: int, largest: bool) -> Array:
    """Along `dim`, where the largest (or smallest) element so far is: the last of equal ones, and a nan if any."""
    if input.size < _SMALL or not compiled_for(input):
        return NotImplemented
    out = np.empty(input.shape, np.int64)
    _places(_lines(input, dim), largest, _lines(out, dim))
    return out


def _running(body: Any, input: Array, dim: int, dtype: Any) -> Array:
    if dtype is not None or input.size < _SMALL or not input.ndim:
        return NotImplemented
    if is_half(input.dtype):
        return cast(_running(body, cast(input, np.float32), dim, None), input.dtype)
    if not compiled_for(input):
        return NotImplemented
    out = np.empty(input.shape, input.dtype)
    body(_lines(input, dim), _lines(out, dim))
    return out


def _lines(x: Array, dim: int) -> Array:
    """(what is before `dim`, `dim`, what is after)."""
    return np.ascontiguousarray(x).reshape(
        math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])
    )


@shared("x", "out")
@kernel
def _sums(x, out):
    lines, length, wide = x.shape
    totals = np.empty(wide, np.float64)
    for i in range(lines):
        if wide == 1:
            source, sink, total = x[i, :, 0], out[i, :, 0], 0.0
            for j in range(length):
                total += source[j]
                sink[j] = total
        else:
            totals[:] = 0.0
            for j in range(length):
                source, sink = x[i, j], out[i, j]
                for k in range(wide):
                    totals[k] += source[k]
                    sink[k] = totals[k]


@shared("x", "out")
@kernel
def _products(x, out):
    lines, length, wide = x.shape
    totals = np.empty(wide, np.float64)
    for i in range(lines):
        if wide == 1:
            source, sink, total = x[i, :, 0], out[i, :, 0], 1.0
            for j in range(length):
                total *= source[j]
                sink[j] = total
        else:
            totals[:] = 1.0
            for j in range(length):
                source, sink = x[i, j], out[i, j]
                for k in range(wide):
                    totals[k] *= source[k]
                    sink[k] = totals[k]


def _running_places(x, largest, out):
    turn = x.dtype.type(1 if largest else -1)
    for i in range(x.shape[0]):
        for k in range(x.shape[2]):
            source, sink = x[i, :, k], out[i, :, k]
            best, place = turn * source[0], 0
            for j in range(source.size):
                value = turn * source[j]
                if value >= best or value != value:
                    best, place = value, j
                sink[j] = place


_places = shared("x", "out")(cached(njit(**_OPTIONS)(_running_places)))
