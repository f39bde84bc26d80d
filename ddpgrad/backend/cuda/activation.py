"""Activations and softmax in one CUDA kernel each, for all floating-point types."""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]

from .source import WARP, computes, contiguous, elementwise

Array = Any

_SQRT_HALF, _DENSITY = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)
_SLOPE, _CUBIC = math.sqrt(2 / math.pi), 0.044715

_gelu = elementwise(
    "T x",
    "T out",
    f"""
    const A v = (A)x;
    out = (T)((A)0.5 * v * ((A)1 + erf(v * (A){_SQRT_HALF!r})));
    """,
    "gelu",
)
_gelu_tanh = elementwise(
    "T x",
    "T out",
    f"""
    const A v = (A)x;
    out = (T)((A)0.5 * v * ((A)1 + tanh((A){_SLOPE!r} * (v + (A){_CUBIC!r} * v * v * v))));
    """,
    "gelu_tanh",
)
_gelu_backward = elementwise(
    "T g, T x",
    "T out",
    f"""
    const A v = (A)x;
    const A below = (A)0.5 * ((A)1 + erf(v * (A){_SQRT_HALF!r}));
    out = (T)((A)g * (below + v * exp((A)-0.5 * v * v) * (A){_DENSITY!r}));
    """,
    "gelu_backward",
)
_gelu_tanh_backward = elementwise(
    "T g, T x",
    "T out",
    f"""
    const A v = (A)x;
    const A t = tanh((A){_SLOPE!r} * (v + (A){_CUBIC!r} * v * v * v));
    const A inner = (A){_SLOPE!r} * ((A)1 + (A){3 * _CUBIC!r} * v * v);
    out = (T)((A)g * ((A)0.5 * ((A)1 + t) + (A)0.5 * v * ((A)1 - t * t) * inner));
    """,
    "gelu_tanh_backward",
)


def gelu(input: Array, approximate: str = "none") -> Array:
    """input times the normal distribution function of input, or its tanh approximation."""
    if not computes(input):
        return NotImplemented
    return _gelu_tanh(input) if approximate == "tanh" else _gelu(input)


def gelu_backward(g: Array, input: Array, approximate: str) -> Array:
    """The gradient of `gelu`."""
    if not computes(g, input):
        return NotImplemented
    return _gelu_tanh_backward(g, input) if approximate == "tanh" else _gelu_backward(g, input)


# One warp per row; `logarithm` chooses between softmax and its logarithm.
_softmax = elementwise(
    "raw T input, int64 columns, bool logarithm",
    "raw T out",
    """
    const long long row = i / 32;
    const T* x = &input[row * columns];
    T* y = &out[row * columns];
    A top = (A)x[0];
    for (long long j = i % 32; j < columns; j += 32) top = larger(top, (A)x[j]);
    top = warp_max(top);
    A total = 0;
    for (long long j = i % 32; j < columns; j += 32) total += exp((A)x[j] - top);
    total = warp_sum(total);
    const A shift = log(total), share = (A)1 / total;
    for (long long j = i % 32; j < columns; j += 32) {
      const A v = (A)x[j] - top;
      y[j] = (T)(logarithm ? v - shift : exp(v) * share);
    }
    """,
    "softmax",
)
_softmax_backward = elementwise(
    "raw T g, raw T out, int64 columns, bool logarithm",
    "raw T grad",
    """
    const long long row = i / 32;
    const T* dy = &g[row * columns];
    const T* y = &out[row * columns];
    T* dx = &grad[row * columns];
    A total = 0;
    for (long long j = i % 32; j < columns; j += 32) total += logarithm ? (A)dy[j] : (A)dy[j] * (A)y[j];
    total = warp_sum(total);
    for (long long j = i % 32; j < columns; j += 32) {
      const A v = (A)y[j], d = (A)dy[j];
      dx[j] = (T)(logarithm ? d - exp(v) * total : v * (d - total));
    }
    """,
    "softmax_backward",
)


def _forward(input: Array, dim: int, logarithm: bool) -> Array:
    if not computes(input) or dim != max(input.ndim - 1, 0):
        return NotImplemented
    if not input.ndim:  # kernels have no addresses of its element
        return _forward(input.reshape(1), 0, logarithm).reshape(())
    out = cupy.empty(input.shape, input.dtype)
    columns = input.shape[-1]
    _softmax(contiguous(input), columns, logarithm, out, size=input.size // columns * WARP)
    return out


def _backward(g: Array, out: Array, dim: int, logarithm: bool) -> Array:
    if not computes(g, out) or dim != max(out.ndim - 1, 0):
        return NotImplemented
    if not out.ndim:
        return _backward(g.reshape(1), out.reshape(1), 0, logarithm).reshape(())
    grad = cupy.empty(out.shape, out.dtype)
    columns = out.shape[-1]
    _softmax_backward(
        contiguous(g), contiguous(out), columns, logarithm, grad, size=out.size // columns * WARP
    )
    return grad


def softmax(input: Array, dim: int, dtype: Any = None) -> Array:
    """exp(input) normalised to sum 1 along the last dimension; `NotImplemented` for others."""
    return _forward(input, dim, False) if dtype is None else NotImplemented


def softmax_backward(g: Array, out: Array, dim: int) -> Array:
    """The gradient of `softmax` from its result `out`."""
    return _backward(g, out, dim, False)


def log_softmax(input: Array, dim: int, dtype: Any = None) -> Array:
    """The logarithm of `softmax`, without underflow, along the last dimension."""
    return _forward(input, dim, True) if dtype is None else NotImplemented


def log_softmax_backward(g: Array, out: Array, dim: int) -> Array:
    """The gradient of `log_softmax` from its result `out`."""
    return _backward(g, out, dim, True)
