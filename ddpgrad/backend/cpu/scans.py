"""Running sums, products and extremes along one dimension, compiled for the CPU: float32 and float64.

Sums and products are carried in float64, as PyTorch's are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .half import cast, is_half
from .threads import shared
from .vectormath import compiled_for, kernel, part

Array = np.ndarray[Any, Any]

# Below this many elements NumPy is done before a compiled kernel has started.
_SMALL = 1024
_LOOK = 16  # elements that are compared with the largest so far before it is known whether one is larger


def cumsum(input: Array, dim: int, dtype: Any = None) -> Array:
    """The running sum along `dim`."""
    return _running(_sums, input, dim, dtype)


def cumprod(input: Array, dim: int, dtype: Any = None) -> Array:
    """The running product along `dim`."""
    return _running(_products, input, dim, dtype)


def logcumsumexp(input: Array, dim: int) -> Array:
    """The logarithm of the running sum of powers of e along `dim`."""
    return _running(_logs_of_sums, input, dim, None)


def running_position(input: Array, dim: int, largest: bool) -> Array:
    """Along `dim`, where the largest (or smallest) element so far is: the last of equal ones, and a nan if any."""
    if not input.ndim or not compiled_for(input):
        return NotImplemented
    if input.size < _SMALL:
        best = (np.maximum if largest else np.minimum).accumulate(input, dim)
        here = np.arange(input.shape[dim]).reshape([-1 if d == dim else 1 for d in range(input.ndim)])
        return np.maximum.accumulate(np.where((input == best) | (input != input), here, 0), dim)
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


def _carried(start: float, combine: Any) -> Any:
    """Running results of `combine`, which get a total of float64 and an element."""
    combine = part(combine)

    def loop(x, out):
        lines, length, wide = x.shape
        totals = np.empty(wide, np.float64)
        for i in range(lines):
            if wide == 1:
                source, sink, total = x[i, :, 0], out[i, :, 0], start
                for j in range(length):
                    total = combine(total, source[j])
                    sink[j] = total
            else:
                totals[:] = start
                for j in range(length):
                    source, sink = x[i, j], out[i, j]
                    for k in range(wide):
                        totals[k] = combine(totals[k], source[k])
                        sink[k] = totals[k]

    return shared("x", "out")(kernel(loop))


def _sum(total, element):
    return total + element


def _product(total, element):
    return total * element


def _log_of_sum(total, element):
    number = np.float64(element)
    high, low = (number, total) if number >= total else (total, number)
    if low != low:
        return low
    if low == high and math.isinf(low):
        return high
    return high + math.log1p(math.exp(low - high))


_sums, _products, _logs_of_sums = (
    _carried(0.0, _sum),
    _carried(1.0, _product),
    _carried(-math.inf, _log_of_sum),
)


def _running_places(x, largest, out):
    turn = x.dtype.type(1 if largest else -1)
    lines, length, wide = x.shape
    bests, places = np.empty(wide, x.dtype), np.empty(wide, np.int64)
    for i in range(lines):
        if wide == 1:
            source, sink = x[i, :, 0], out[i, :, 0]
            best, place = turn * source[0], 0
            for start in range(0, length, _LOOK):
                block, places_of_block = source[start : start + _LOOK], sink[start : start + _LOOK]
                changes = False
                for j in range(block.size):  # which is seldom so, and asked by whole vectors
                    value = turn * block[j]
                    changes |= (value >= best) | (value != value)
                for j in range(block.size):
                    value = turn * block[j]
                    if changes and (value >= best or value != value):
                        best, place = value, start + j
                    places_of_block[j] = place
            continue
        for k in range(wide):
            bests[k], places[k] = turn * x[i, 0, k], 0
        for j in range(length):
            source, sink = x[i, j], out[i, j]
            for k in range(wide):
                value = turn * source[k]
                later = (value >= bests[k]) | (value != value)
                bests[k] = value if later else bests[k]
                places[k] = j if later else places[k]
                sink[k] = places[k]


_places = shared("x", "out")(kernel(_running_places, set()))
