"""Compiled activations in pieces for the CPU, one pass over memory each: float32, float64 and floats of 16 bits.

An activation is a function of one number and its options, which a ufunc is compiled for (`element_loops.py`). Every
function of arrays returns `NotImplemented`, before anything else, for what it is not written for.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from .element_loops import of_elements
from .numbers import where
from .vectormath import exp, exp_of_negative, expm1, log1p_of_fraction, normal

Array = np.ndarray[Any, Any]

WRITES = ("relu", "clamp")  # kernels that write into `out`, which may be the input
_TANH_SCALE, _TANH_CUBIC = 2 * math.sqrt(2 / math.pi), 0.044715
_clip = import_module("numpy._core.umath").clip  # the ufunc, which np.clip takes a microsecond to call


def relu(input: Array, out: Array | None = None) -> Array:
    """max(input, 0); NaN stays NaN."""
    if input.dtype.char in "fd":
        return _clip(input, *_bounds_of_relu(input.dtype), out=out)
    if out is not None:
        return NotImplemented
    return of_elements(_relu, input) if _is_narrow(input.dtype) else np.maximum(input, 0)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2 and dtype.kind in "fV"


@cache
def _bounds_of_relu(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """0 and infinity as arrays, which ufuncs take sooner than numbers."""
    return np.zeros((), dtype), np.array(np.inf, dtype)


def relu_backward(g: Array, out: Array) -> Array:
    """0 where `out`, the result of `relu`, is 0, else g, also where `out` is NaN."""
    return of_elements(_relu_backward, g, out)


def gelu(input: Array, approximate: str = "none") -> Array:
    """x * Phi(x), or with approximate="tanh" Hendrycks and Gimpel's x * sigmoid(2 u(x)), written with tanh."""
    if approximate == "none":
        return of_elements(_gelu, input)
    return of_elements(_gelu_tanh, input)


def gelu_backward(g: Array, input: Array, approximate: str = "none") -> Array:
    """The gradient of `gelu` for `input`, given `g`, the gradient for its result."""
    if approximate == "none":
        return of_elements(_gelu_backward, g, input)
    return of_elements(_gelu_tanh_backward, g, input)


def silu(input: Array) -> Array:
    """x * sigmoid(x)."""
    return of_elements(_silu, input)


def silu_backward(g: Array, input: Array) -> Array:
    """The gradient of `silu` for `input`."""
    return of_elements(_silu_backward, g, input)


def leaky_relu(input: Array, negative_slope: float = 0.01) -> Array:
    """x where positive, else x * negative_slope."""
    return of_elements(_leaky_relu, input, options=(negative_slope,))


def leaky_relu_backward(g: Array, input: Array, negative_slope: float) -> Array:
    """The gradient of `leaky_relu` for `input`."""
    return of_elements(_leaky_relu_backward, g, input, options=(negative_slope,))


def prelu_kernel(input: Array, weight: Array) -> Array:
    """x where positive, else x * weight, of which there is one or one for each channel."""
    if weight.size == 1 and weight.dtype == input.dtype:
        return of_elements(_leaky_relu, input, options=(weight.item(),))
    return of_elements(_prelu, input, weight)


def scaled_elu(input: Array, alpha: float, scale: float, input_scale: float) -> Array:
    """scale times x where positive, else times alpha * (exp(x * input_scale) - 1)."""
    return of_elements(_scaled_elu, input, options=(alpha, scale, input_scale))


def scaled_elu_backward(g: Array, input: Array, alpha: float, scale: float, input_scale: float) -> Array:
    """The gradient of `scaled_elu` for `input`."""
    return of_elements(
        _scaled_elu_backward, g, input, options=(alpha * scale * input_scale, scale, input_scale)
    )


def softplus(input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above `threshold`."""
    return of_elements(_softplus, input, options=(beta, threshold))


def softplus_backward(g: Array, input: Array, beta: float, threshold: float) -> Array:
    """The gradient of `softplus` for `input`."""
    return of_elements(_softplus_backward, g, input, options=(beta, threshold))


def sigmoid(input: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return of_elements(_sigmoid, input)


def sigmoid_backward(g: Array, out: Array) -> Array:
    """The gradient of `sigmoid` for its input, from its result."""
    return of_elements(_sigmoid_backward, g, out)


def hardshrink(input: Array, lambd: float = 0.5) -> Array:
    """x where |x| is above `lambd`, else 0."""
    return of_elements(_hardshrink, input, options=(lambd,))


def softshrink(input: Array, lambd: float = 0.5) -> Array:
    """x moved towards 0 by `lambd`, and 0 within it."""
    return of_elements(_softshrink, input, options=(lambd,))


def shrink_backward(g: Array, input: Array, lambd: float) -> Array:
    """The gradient of `hardshrink` and of `softshrink` for `input`."""
    return of_elements(_shrink_backward, g, input, options=(lambd,))


def threshold(input: Array, threshold: float, value: float) -> Array:
    """x where it is above `threshold`, else `value`."""
    return of_elements(_threshold, input, options=(threshold, value))


def threshold_backward(g: Array, input: Array, threshold: float) -> Array:
    """The gradient of `threshold` for `input`."""
    return of_elements(_threshold_backward, g, input, options=(threshold,))


def clamp(input: Array, min: Any = None, max: Any = None, out: Array | None = None) -> Array:
    """x limited to [min, max]; None is no limit."""
    limits = None if min is None and max is None else _limits(min, max)
    if limits is None or not (input.dtype.char in "fd" or _is_narrow(input.dtype)):
        return NotImplemented
    kind = input.dtype.type
    low, high = kind(limits[0]), kind(limits[1])
    if input.dtype.char in "fd":
        return _clip(input, low, high, out=out)
    return np.minimum(np.maximum(input, low), high, out=out)


def clamp_backward(g: Array, input: Array, min: Any, max: Any) -> Array:
    """The gradient of `clamp` for `input`."""
    limits = _limits(min, max)
    return NotImplemented if limits is None else of_elements(_clamp_backward, g, input, options=limits)


def hardtanh_backward(g: Array, input: Array, min_val: float, max_val: float) -> Array:
    """The gradient of `hardtanh` for `input`: none at the limits."""
    return of_elements(_hardtanh_backward, g, input, options=(min_val, max_val))


def hardsigmoid(input: Array) -> Array:
    """x / 6 + 1/2, limited to [0, 1]."""
    return of_elements(_hardsigmoid, input)


def hardsigmoid_backward(g: Array, input: Array) -> Array:
    """The gradient of `hardsigmoid` for `input`."""
    return of_elements(_hardsigmoid_backward, g, input)


def hardswish(input: Array) -> Array:
    """x * min(max(x + 3, 0), 6) / 6."""
    return of_elements(_hardswish, input)


def hardswish_backward(g: Array, input: Array) -> Array:
    """The gradient of `hardswish` for `input`."""
    return of_elements(_hardswish_backward, g, input)


def _limits(low: Any, high: Any) -> tuple[float, float] | None:
    """Both limits as numbers; None where they are arrays or NaN."""
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    numbers = isinstance(low, (int, float)) and isinstance(high, (int, float))
    return (low, high) if numbers and low == low and high == high else None


# -- elements --------------------------------------------------------------------------------
# A comparison with NaN is false, and lets x through.


def _relu(x):
    return where(x <= 0, type(x)(0), x)


def _relu_backward(g, y):
    return where(y <= 0, type(y)(0), g)


def _gelu(x):
    return x * normal(x)[0]


def _gelu_backward(g, x):
    below, density = normal(x)
    return g * (below + x * density)


def _gelu_tanh(x):
    kind = type(x)
    u = kind(_TANH_SCALE) * x * (kind(1) + kind(_TANH_CUBIC) * x * x)
    return x / (kind(1) + exp(-u))


def _gelu_tanh_backward(g, x):
    kind = type(x)
    one, scale = kind(1), kind(_TANH_SCALE)
    u = scale * x * (one + kind(_TANH_CUBIC) * x * x)
    s = one / (one + exp(-u))
    return g * (s + x * s * (one - s) * scale * (one + kind(3 * _TANH_CUBIC) * x * x))


def _silu(x):
    return x / (type(x)(1) + exp(-x))


def _silu_backward(g, x):
    one = type(x)(1)
    s = one / (one + exp(-x))
    return g * s * (one + x * (one - s))


def _leaky_relu(x, slope):
    return where(x > 0, x, x * slope)


def _prelu(x, slope):  # of two arrays, which a ufunc of `_leaky_relu` is not
    return where(x > 0, x, x * slope)


def _leaky_relu_backward(g, x, slope):
    return where(x > 0, g, g * slope)


def _scaled_elu(x, alpha, scale, input_scale):
    below = where(x > 0, 0, x) * input_scale
    return where(x > 0, x, alpha * expm1(below)) * scale


def _scaled_elu_backward(g, x, slope, scale, input_scale):
    below = where(x > 0, 0, x) * input_scale
    return g * where(x > 0, scale, slope * exp(below))


def _softplus(x, beta, threshold):
    scaled = x * beta
    soft = (where(scaled > 0, scaled, 0) + log1p_of_fraction(exp_of_negative(-abs(scaled)))) / beta
    return where(scaled > threshold, x, soft)


def _softplus_backward(g, x, beta, threshold):
    scaled, one = x * beta, type(x)(1)
    small = exp_of_negative(-abs(scaled))
    share = where(scaled > 0, one, small) / (one + small)
    return where(scaled > threshold, g, g * share)


def _sigmoid(x):
    one = type(x)(1)
    return one / (one + exp(-x))


def _sigmoid_backward(g, y):
    return g * y * (type(y)(1) - y)


def _hardshrink(x, lambd):
    return where(abs(x) <= lambd, 0, x)


def _softshrink(x, lambd):
    return x - where(x > lambd, lambd, where(x < -lambd, -lambd, x))


def _shrink_backward(g, x, lambd):
    return where(abs(x) <= lambd, 0, g)


def _threshold(x, threshold, value):
    return where(x <= threshold, value, x)


def _threshold_backward(g, x, threshold):
    return where(x <= threshold, 0, g)


def _clamp_backward(g, x, low, high):
    return where((x >= low) & (x <= high), g, 0)


def _hardtanh_backward(g, x, low, high):
    return where((x <= low) | (x >= high), 0, g)


def _hardsigmoid(x):
    kind = type(x)
    gate = x * kind(1 / 6) + kind(0.5)
    return where(gate < 0, 0, where(gate > 1, 1, gate))


def _hardsigmoid_backward(g, x):
    return where(abs(x) < 3, g * type(x)(1 / 6), 0)


def _hardswish(x):
    six = type(x)(6)
    gate = x + type(x)(3)
    gate = where(gate < 0, 0, gate)
    return x * where(gate > six, six, gate) / six


def _hardswish_backward(g, x):
    three = type(x)(3)
    slope = where(x <= -three, 0, x / three + type(x)(0.5))
    return g * where(x >= three, 1, slope)
