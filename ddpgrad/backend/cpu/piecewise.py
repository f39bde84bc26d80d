"""Compiled activations in pieces for the CPU, one pass over memory each: float32 and float64.

As in `activation.py`, every function returns `NotImplemented`, before anything else, for what
it is not written for; outputs are new C-contiguous arrays of the input's shape.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .vectormath import compiled_for, exp_of_negative, kernel

Array = np.ndarray[Any, Any]


def leaky_relu(input: Array, negative_slope: float = 0.01) -> Array:
    """x where positive, else x * negative_slope."""
    return _map(_leaky_relu, input, negative_slope)


def leaky_relu_backward(g: Array, input: Array, negative_slope: float) -> Array:
    """The gradient of `leaky_relu` for `input`."""
    return _map_pair(_leaky_relu_backward, g, input, negative_slope)


def elu(input: Array, alpha: float = 1.0) -> Array:
    """x where positive, else alpha * (exp(x) - 1)."""
    return _map(_elu, input, alpha)


def elu_backward(g: Array, input: Array, alpha: float) -> Array:
    """The gradient of `elu` for `input`."""
    return _map_pair(_elu_backward, g, input, alpha)


def hardswish(input: Array) -> Array:
    """x * min(max(x + 3, 0), 6) / 6."""
    return _map(_hardswish, input, 6.0)


def hardswish_backward(g: Array, input: Array) -> Array:
    """The gradient of `hardswish` for `input`."""
    return _map_pair(_hardswish_backward, g, input, 3.0)


def _map(body: Any, x: Array, option: float) -> Any:
    if not compiled_for(x):
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    body(np.ascontiguousarray(x).reshape(-1), x.dtype.type(option), out.reshape(-1))
    return out


def _map_pair(body: Any, g: Array, x: Array, option: float) -> Any:
    if not compiled_for(g, x):
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    flat = (np.ascontiguousarray(a).reshape(-1) for a in (g, x))
    body(*flat, x.dtype.type(option), out.reshape(-1))
    return out


@kernel
def _leaky_relu(x, slope, out):
    for i in range(x.size):
        out[i] = x[i] if x[i] > 0 else x[i] * slope


@kernel
def _leaky_relu_backward(g, x, slope, out):
    for i in range(x.size):
        out[i] = g[i] if x[i] > 0 else g[i] * slope


@kernel
def _elu(x, alpha, out):
    for i in range(x.size):
        # Near 0 the difference of exp and 1 would lose its digits.
        out[i] = x[i] if x[i] > 0 else alpha * x.dtype.type(math.expm1(x[i]))


@kernel
def _elu_backward(g, x, alpha, out):
    zero = x.dtype.type(0)
    for i in range(x.size):
        below = zero if x[i] > zero else x[i]
        slope = alpha * exp_of_negative(below)
        out[i] = g[i] if x[i] > zero else g[i] * slope


@kernel
def _hardswish(x, six, out):
    zero = x.dtype.type(0)
    three = x.dtype.type(3)
    for i in range(x.size):
        gate = x[i] + three
        gate = zero if gate < zero else gate
        gate = six if gate > six else gate
        out[i] = x[i] * gate / six


@kernel
def _hardswish_backward(g, x, three, out):
    half = x.dtype.type(0.5)
    zero = x.dtype.type(0)
    for i in range(x.size):
        inner = g[i] * (x[i] / three + half)
        inner = inner if x[i] > -three else zero
        out[i] = g[i] if x[i] >= three else inner
