"""Compiled softmax and gated units for the CPU: one pass over memory each, float32 and float64.

Every function returns `NotImplemented`, before anything else, for what it is not written
for. Outputs are new C-contiguous arrays of the input's shape; inputs stay as they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .threads import shared
from .vectormath import compiled_for, exp, exp_of_negative, from_ordered, kernel, less_both, to_ordered

# Below this many elements NumPy is done before a compiled kernel has started.
_SMALL = 1024
_BLOCK = 256  # columns that are summed at once


def softmax(input: np.ndarray, dim: int, dtype: Any = None) -> np.ndarray:
    """exp(x) / sum(exp(x)) along a dimension; where all are -inf, or one is +inf or NaN, it is NaN."""
    if dtype is not None or not compiled_for(input) or input.ndim == 0 or input.size == 0:
        return NotImplemented
    if dim != input.ndim - 1:
        return _softmax_across(input, dim, False)
    out = np.array(input, order="C")
    _softmax_(out.reshape(-1, input.shape[-1]))
    return out


def softmax_backward(g: np.ndarray, out: np.ndarray, dim: int) -> np.ndarray:
    """The gradient of `softmax` for its input; `out` is its result."""
    return _backward(g, out, dim, False)


def log_softmax(input: np.ndarray, dim: int, dtype: Any = None) -> np.ndarray:
    """x - max(x) - log(sum(exp(x - max(x)))) along a dimension."""
    if dtype is not None or not compiled_for(input) or input.ndim == 0 or input.size == 0:
        return NotImplemented
    if dim != input.ndim - 1:
        return _softmax_across(input, dim, True)
    out = np.empty(input.shape, input.dtype)
    n = input.shape[-1]
    _log_softmax(np.ascontiguousarray(input).reshape(-1, n), out.reshape(-1, n))
    return out


def log_softmax_backward(g: np.ndarray, out: np.ndarray, dim: int) -> np.ndarray:
    """The gradient of `log_softmax` for its input; `out` is its result."""
    return _backward(g, out, dim, True)


def _softmax_across(input: np.ndarray, dim: int, log: bool) -> np.ndarray:
    """`softmax` or `log_softmax` along a dimension that is not the last."""
    out = np.empty(input.shape, input.dtype)
    keys = np.empty(_BLOCK, np.int32 if input.itemsize == 4 else np.int64)
    _softmax_columns(_columns(input, dim), keys, log, _columns(out, dim))
    return out


def _backward(g: np.ndarray, out: np.ndarray, dim: int, log: bool) -> np.ndarray:
    if not compiled_for(g, out) or out.ndim == 0 or out.size == 0:
        return NotImplemented
    if dim == out.ndim - 1:
        return _map_rows(_log_softmax_backward if log else _softmax_backward, g, out)
    result, totals = np.empty(out.shape, out.dtype), np.empty(_BLOCK, out.dtype)
    _softmax_columns_backward(_columns(g, dim), _columns(out, dim), log, totals, _columns(result, dim))
    return result


def _columns(x: np.ndarray, dim: int) -> np.ndarray:
    """(what is before `dim`, `dim`, what is after)."""
    shape = (math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :]))
    return np.ascontiguousarray(x).reshape(shape)


def glu(input: np.ndarray, dim: int = -1) -> np.ndarray:
    """The first half along `dim` times the sigmoid of the second."""
    if not compiled_for(input) or not input.flags.c_contiguous or not input.size:
        return NotImplemented
    shape, both = _gated(input, dim)
    out = np.empty(shape, input.dtype)
    _glu(both, out.reshape(len(both), -1))
    return out


def glu_backward(g: np.ndarray, input: np.ndarray, dim: int) -> np.ndarray:
    """The gradient of `glu` for `input`."""
    if not compiled_for(g, input) or not input.flags.c_contiguous or not input.size:
        return NotImplemented
    out = np.empty(input.shape, input.dtype)
    _, both = _gated(input, dim)
    _glu_backward(np.ascontiguousarray(g).reshape(len(both), -1), both, out.reshape(both.shape))
    return out


def _gated(input: np.ndarray, dim: int) -> tuple[tuple[int, ...], np.ndarray]:
    """The shape of half of `input`, and rows that each hold values and then as many gates."""
    shape = list(input.shape)
    shape[dim] //= 2
    rows = math.prod(shape[: dim % input.ndim])
    return tuple(shape), input.reshape(rows, -1)


def _map_rows(body, g: np.ndarray, y: np.ndarray) -> np.ndarray:
    out = np.empty(y.shape, y.dtype)
    n = y.shape[-1]
    body(np.ascontiguousarray(g).reshape(-1, n), np.ascontiguousarray(y).reshape(-1, n), out.reshape(-1, n))
    return out


@shared("x")
@kernel
def _softmax_(x):
    one = x.dtype.type(1)
    for i in range(x.shape[0]):
        row = x[i]
        key = to_ordered(row[0])
        for j in range(row.size):
            k = to_ordered(row[j])
            key = k if k > key else key
        top = from_ordered(key)
        total = x.dtype.type(0)
        for j in range(row.size):
            e = exp_of_negative(row[j] - top)
            row[j] = e
            total += e
        scale = one / total
        for j in range(row.size):
            row[j] *= scale


@shared("g", "y", "out")
@kernel
def _softmax_backward(g, y, out):
    for i in range(y.shape[0]):
        dot = y.dtype.type(0)
        for j in range(y.shape[1]):
            dot += g[i, j] * y[i, j]
        for j in range(y.shape[1]):
            out[i, j] = y[i, j] * (g[i, j] - dot)


@shared("x", "out")
@kernel
def _log_softmax(x, out):
    for i in range(x.shape[0]):
        row = x[i]
        key = to_ordered(row[0])
        for j in range(row.size):
            k = to_ordered(row[j])
            key = k if k > key else key
        top = from_ordered(key)
        total = x.dtype.type(0)
        for j in range(row.size):
            total += exp_of_negative(row[j] - top)
        total = x.dtype.type(math.log(total))
        for j in range(row.size):
            out[i, j] = less_both(row[j], top, total)


@shared("g", "y", "out")
@kernel
def _log_softmax_backward(g, y, out):
    for i in range(y.shape[0]):
        total = y.dtype.type(0)
        for j in range(y.shape[1]):
            total += g[i, j]
        for j in range(y.shape[1]):
            out[i, j] = g[i, j] - exp_of_negative(y[i, j]) * total


@kernel
def _softmax_columns(x, keys, log, out):
    one, zero = x.dtype.type(1), x.dtype.type(0)
    totals = np.empty(keys.size, x.dtype)
    for i in range(x.shape[0]):
        for first in range(0, x.shape[2], keys.size):
            end = min(first + keys.size, x.shape[2])
            row, highest, total = x[i, 0, first:end], keys[: end - first], totals[: end - first]
            for k in range(row.size):
                highest[k], total[k] = to_ordered(row[k]), zero
            for j in range(1, x.shape[1]):
                row = x[i, j, first:end]
                for k in range(row.size):
                    key = to_ordered(row[k])
                    highest[k] = key if key > highest[k] else highest[k]
            for j in range(x.shape[1]):
                row, sink = x[i, j, first:end], out[i, j, first:end]
                for k in range(row.size):
                    e = exp_of_negative(row[k] - from_ordered(highest[k]))
                    sink[k] = e
                    total[k] += e
            for k in range(total.size):
                total[k] = x.dtype.type(math.log(total[k])) if log else one / total[k]
            for j in range(x.shape[1]):
                row, sink = x[i, j, first:end], out[i, j, first:end]
                if log:
                    for k in range(row.size):
                        sink[k] = less_both(row[k], from_ordered(highest[k]), total[k])
                else:
                    for k in range(row.size):
                        sink[k] *= total[k]


@kernel
def _softmax_columns_backward(g, y, log, totals, out):
    zero = y.dtype.type(0)
    for i in range(y.shape[0]):
        for first in range(0, y.shape[2], totals.size):
            end = min(first + totals.size, y.shape[2])
            total = totals[: end - first]
            for k in range(total.size):
                total[k] = zero
            for j in range(y.shape[1]):
                a, b = g[i, j, first:end], y[i, j, first:end]
                if log:
                    for k in range(total.size):
                        total[k] += a[k]
                else:
                    for k in range(total.size):
                        total[k] += a[k] * b[k]
            for j in range(y.shape[1]):
                a, b, sink = g[i, j, first:end], y[i, j, first:end], out[i, j, first:end]
                if log:
                    for k in range(total.size):
                        sink[k] = a[k] - exp_of_negative(b[k]) * total[k]
                else:
                    for k in range(total.size):
                        sink[k] = b[k] * (a[k] - total[k])


@shared("x", "out")
@kernel
def _glu(x, out):
    one = x.dtype.type(1)
    for i in range(x.shape[0]):
        row, half = out[i], x.shape[1] // 2
        values, gates = x[i, :half], x[i, half:]
        for j in range(half):
            row[j] = values[j] / (one + exp(-gates[j]))


@shared("g", "x", "out")
@kernel
def _glu_backward(g, x, out):
    one = x.dtype.type(1)
    for i in range(x.shape[0]):
        row, half = g[i], x.shape[1] // 2
        values, gates, of_values, of_gates = x[i, :half], x[i, half:], out[i, :half], out[i, half:]
        for j in range(half):
            gate = one / (one + exp(-gates[j]))
            of_values[j] = row[j] * gate
            of_gates[j] = row[j] * gate * values[j] * (one - gate)
