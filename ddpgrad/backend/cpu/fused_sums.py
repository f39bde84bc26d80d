"""Compiled sums with a weight for the CPU, in one pass and rounded where PyTorch's vector code rounds.

Each may write to its first array, `out`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ..layout import beside
from .doublemath import fused
from .threads import shared
from .vectormath import _INLINED, kernel, narrowed, widened

Array = np.ndarray[Any, Any]

# Below this many elements NumPy is done before a compiled kernel has started.
_SMALL = 64
_ONE, _HALF = np.float32(1), np.float32(0.5)
_IN_ORDER: set[str] = set()  # of what fast arithmetic may do: nothing
_ELEMENT: Any = {**_INLINED, "fastmath": _IN_ORDER}


def _prepared(arrays: list[Any], out: Array | None) -> tuple[Array, Array, list[Array]] | None:
    """The result, it as a vector, and `arrays` as vectors beside it; None for what is left to NumPy."""
    first = arrays[0]
    dtype, shape, whole = first.dtype, first.shape, True
    if first.size < _SMALL or not dtype.isnative or (dtype.char not in "fd" and dtype.itemsize != 2):
        return None
    for x in arrays:
        if x.__class__ is not np.ndarray or x.dtype != dtype or x.shape != shape:
            return None
        whole = whole and x.flags.c_contiguous
    if whole:
        result = np.empty(shape, dtype) if out is None else out
        sink, vectors = result.reshape(-1), [x.reshape(-1) for x in arrays]
    elif out is None:
        result, sink, vectors = beside(dtype, *arrays)
    else:
        return None
    if dtype.itemsize != 2:
        return result, sink, vectors
    from .half import is_half, stored  # which programs without such numbers do not load

    return (result, stored(sink), [stored(x) for x in vectors]) if is_half(dtype) else None


def _with_number(loop: Any, arrays: list[Any], number: Any, out: Array | None) -> Array:
    """What `loop` makes of `arrays` and a number."""
    prepared = _prepared(arrays, out)
    if prepared is None or not isinstance(number, (int, float)):
        return NotImplemented
    result, sink, vectors = prepared
    loop(*vectors, (np.float32 if sink.itemsize == 2 else sink.dtype.type)(number), sink)
    return result


def scaled_sum(input: Array, other: Array, alpha: Any, out: Array | None = None) -> Array:
    """input + alpha * other."""
    return _with_number(_scaled_sum, [input, other], alpha, out)


def addcmul(input: Array, tensor1: Array, tensor2: Array, value: Any = 1, out: Array | None = None) -> Array:
    """input + value * tensor1 * tensor2."""
    return _with_number(_addcmul, [input, tensor1, tensor2], value, out)


def addcdiv(input: Array, tensor1: Array, tensor2: Array, value: Any = 1, out: Array | None = None) -> Array:
    """input + value * tensor1 / tensor2."""
    return _with_number(_addcdiv, [input, tensor1, tensor2], value, out)


def lerp(input: Array, end: Array, weight: Any, out: Array | None = None) -> Array:
    """`input` moved towards `end` by the fraction `weight`, from the nearer of both."""
    if isinstance(weight, (int, float)):
        return _with_number(_lerp, [input, end], weight, out)
    prepared = _prepared([input, end, weight], out)
    if prepared is None:
        return NotImplemented
    result, sink, vectors = prepared
    _lerp_each(*vectors, sink)
    return result


WRITES = ("scaled_sum", "addcmul", "addcdiv", "lerp")
"""Kernels that take `out`."""


def _in_order(function: Any) -> Any:
    return kernel(function, _IN_ORDER)


@shared("a", "b", "out")
@_in_order
def _scaled_sum(a, b, alpha, out):
    for i in range(out.size):
        out[i] = narrowed(fused(alpha, widened(b[i]), widened(a[i])), out)


@shared("a", "b", "c", "out")
@_in_order
def _addcmul(a, b, c, value, out):
    for i in range(out.size):
        out[i] = narrowed(fused(value * widened(b[i]), widened(c[i]), widened(a[i])), out)


@shared("a", "b", "c", "out")
@_in_order
def _addcdiv(a, b, c, value, out):
    for i in range(out.size):
        out[i] = narrowed(widened(a[i]) + value * widened(b[i]) / widened(c[i]), out)


@njit(**_ELEMENT)
def _between(a, b, weight):
    way = b - a
    near = fused(weight, way, a)
    far = fused(-way, _ONE - weight, b)
    return near if abs(weight) < _HALF else far


@shared("a", "b", "out")
@_in_order
def _lerp(a, b, weight, out):
    for i in range(out.size):
        out[i] = narrowed(_between(widened(a[i]), widened(b[i]), weight), out)


@shared("a", "b", "weights", "out")
@_in_order
def _lerp_each(a, b, weights, out):
    for i in range(out.size):
        out[i] = narrowed(_between(widened(a[i]), widened(b[i]), widened(weights[i])), out)
