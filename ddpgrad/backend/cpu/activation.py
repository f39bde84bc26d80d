"""Compiled activations and softmax for the CPU: one pass over memory each, float32 and float64.

Every function returns `NotImplemented`, before anything else, for what it is not written
for. Outputs are new C-contiguous arrays of the input's shape; inputs stay as they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..layout import beside
from .vectormath import (
    compiled_for,
    exp,
    exp_of_negative,
    from_ordered,
    kernel,
    less_both,
    normal,
    to_ordered,
)

# Below this many elements NumPy is done before a compiled kernel has started.
_SMALL = 1024
_TANH_SCALE = 2 * math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def relu(input: np.ndarray) -> np.ndarray:
    """max(input, 0); NaN stays NaN."""
    if input.size < _SMALL:
        return np.maximum(input, 0)
    if not compiled_for(input):
        return NotImplemented
    return _map(_relu, input)


def relu_backward(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """g where `out`, the result of `relu`, is above 0, else 0."""
    if out.size < _SMALL:
        zero = np.zeros((), out.dtype)  # compared with faster than a number
        return np.where(np.greater(out, zero), g, zero)
    if not compiled_for(g, out):
        return NotImplemented
    return _map_pair(_relu_backward, g, out)


def gelu(input: np.ndarray, approximate: str = "none") -> np.ndarray:
    """x * Phi(x), or with approximate="tanh" Hendrycks and Gimpel's x * sigmoid(2 u(x)), written with tanh."""
    if not compiled_for(input):
        return NotImplemented
    return _map(_gelu if approximate == "none" else _gelu_tanh, input)


def gelu_backward(g: np.ndarray, input: np.ndarray, approximate: str = "none") -> np.ndarray:
    """The gradient of `gelu` for `input`, given `g`, the gradient for its result."""
    if not compiled_for(g, input):
        return NotImplemented
    return _map_pair(_gelu_backward if approximate == "none" else _gelu_tanh_backward, g, input)


def silu(input: np.ndarray) -> np.ndarray:
    """x * sigmoid(x)."""
    if not compiled_for(input):
        return NotImplemented
    return _map(_silu, input)


def silu_backward(g: np.ndarray, input: np.ndarray) -> np.ndarray:
    """The gradient of `silu` for `input`."""
    if not compiled_for(g, input):
        return NotImplemented
    return _map_pair(_silu_backward, g, input)


def softmax(input: np.ndarray, dim: int, dtype: Any = None) -> np.ndarray:
    """exp(x) / sum(exp(x)) along the last dimension; a row that is all -inf, or holds +inf or NaN, is NaN."""
    if dtype is not None or not compiled_for(input) or dim != input.ndim - 1 or input.size == 0:
        return NotImplemented
    out = np.array(input, order="C")
    _softmax_(out.reshape(-1, input.shape[-1]))
    return out


def softmax_backward(g: np.ndarray, out: np.ndarray, dim: int) -> np.ndarray:
    """The gradient of `softmax` for its input; `out` is its result."""
    if not compiled_for(g, out) or dim != out.ndim - 1 or out.size == 0:
        return NotImplemented
    return _map_rows(_softmax_backward, g, out)


def log_softmax(input: np.ndarray, dim: int, dtype: Any = None) -> np.ndarray:
    """x - max(x) - log(sum(exp(x - max(x)))) along the last dimension."""
    if dtype is not None or not compiled_for(input) or dim != input.ndim - 1 or input.size == 0:
        return NotImplemented
    out = np.empty(input.shape, input.dtype)
    n = input.shape[-1]
    _log_softmax(np.ascontiguousarray(input).reshape(-1, n), out.reshape(-1, n))
    return out


def log_softmax_backward(g: np.ndarray, out: np.ndarray, dim: int) -> np.ndarray:
    """The gradient of `log_softmax` for its input; `out` is its result."""
    if not compiled_for(g, out) or dim != out.ndim - 1 or out.size == 0:
        return NotImplemented
    return _map_rows(_log_softmax_backward, g, out)


def _map(body, x: np.ndarray) -> np.ndarray:
    out, flat, vectors = beside(x.dtype, x)
    body(*vectors, flat)
    return out


def _map_pair(body, g: np.ndarray, x: np.ndarray) -> np.ndarray:
    out, flat, vectors = beside(x.dtype, g, x)
    body(*vectors, flat)
    return out


def _map_rows(body, g: np.ndarray, y: np.ndarray) -> np.ndarray:
    out = np.empty(y.shape, y.dtype)
    n = y.shape[-1]
    body(np.ascontiguousarray(g).reshape(-1, n), np.ascontiguousarray(y).reshape(-1, n), out.reshape(-1, n))
    return out


@kernel
def _relu(x, out):
    zero = x.dtype.type(0)
    for i in range(x.size):
        out[i] = zero if x[i] <= zero else x[i]


@kernel
def _relu_backward(g, y, out):
    zero = y.dtype.type(0)
    for i in range(y.size):
        out[i] = g[i] if y[i] > zero else zero


@kernel
def _gelu(x, out):
    for i in range(x.size):
        below, _ = normal(x[i])
        out[i] = x[i] * below


@kernel
def _gelu_backward(g, x, out):
    for i in range(x.size):
        below, density = normal(x[i])
        out[i] = g[i] * (below + x[i] * density)


@kernel
def _gelu_tanh(x, out):
    one, scale, cubic = x.dtype.type(1), x.dtype.type(_TANH_SCALE), x.dtype.type(_TANH_CUBIC)
    for i in range(x.size):
        v = x[i]
        u = scale * v * (one + cubic * v * v)
        out[i] = v / (one + exp(-u))


@kernel
def _gelu_tanh_backward(g, x, out):
    one, scale = x.dtype.type(1), x.dtype.type(_TANH_SCALE)
    cubic, cubic3 = x.dtype.type(_TANH_CUBIC), x.dtype.type(3 * _TANH_CUBIC)
    for i in range(x.size):
        v = x[i]
        u = scale * v * (one + cubic * v * v)
        s = one / (one + exp(-u))
        out[i] = g[i] * (s + v * s * (one - s) * scale * (one + cubic3 * v * v))


@kernel
def _silu(x, out):
    one = x.dtype.type(1)
    for i in range(x.size):
        out[i] = x[i] / (one + exp(-x[i]))


@kernel
def _silu_backward(g, x, out):
    one = x.dtype.type(1)
    for i in range(x.size):
        s = one / (one + exp(-x[i]))
        out[i] = g[i] * s * (one + x[i] * (one - s))


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


@kernel
def _softmax_backward(g, y, out):
    for i in range(y.shape[0]):
        dot = y.dtype.type(0)
        for j in range(y.shape[1]):
            dot += g[i, j] * y[i, j]
        for j in range(y.shape[1]):
            out[i, j] = y[i, j] * (g[i, j] - dot)


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


@kernel
def _log_softmax_backward(g, y, out):
    for i in range(y.shape[0]):
        total = y.dtype.type(0)
        for j in range(y.shape[1]):
            total += g[i, j]
        for j in range(y.shape[1]):
            out[i, j] = g[i, j] - exp_of_negative(y[i, j]) * total
