"""Compiled activations in pieces for the CPU, one pass over memory each: float32, float64 and floats of 16 bits.

An activation is a function of one number and its options, which a loop is compiled for. Every
function of arrays returns `NotImplemented`, before anything else, for what it is not written
for; outputs are new C-contiguous arrays of the input's shape.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from ..dtype import prepare_narrow
from ..layout import beside
from .numbers import where
from .threads import shared
from .vectormath import (
    compiled_for,
    exp,
    exp_of_negative,
    expm1,
    kernel,
    log1p_of_fraction,
    narrowed,
    normal,
    widened,
)

Array = np.ndarray[Any, Any]

# Below this many elements NumPy is done before a compiled kernel has started.
_SMALL = 1024
_TANH_SCALE, _TANH_CUBIC = 2 * math.sqrt(2 / math.pi), 0.044715


def relu(input: Array) -> Array:
    """max(input, 0); NaN stays NaN."""
    return np.maximum(input, 0) if input.size < 4 * _SMALL else _map(_relu, input, 0.0)


def relu_backward(g: Array, out: Array) -> Array:
    """0 where `out`, the result of `relu`, is 0, else g, also where `out` is NaN."""
    if out.size < _SMALL:
        zero = np.zeros((), out.dtype)  # compared with faster than a number
        return np.where(np.less_equal(out, zero), zero, g)
    return _map_pair(_relu_backward, g, out, 0.0)


def gelu(input: Array, approximate: str = "none") -> Array:
    """x * Phi(x), or with approximate="tanh" Hendrycks and Gimpel's x * sigmoid(2 u(x)), written with tanh."""
    if approximate == "none":
        return _map(_gelu, input)
    return _map(_gelu_tanh, input, 1.0, _TANH_SCALE, _TANH_CUBIC)


def gelu_backward(g: Array, input: Array, approximate: str = "none") -> Array:
    """The gradient of `gelu` for `input`, given `g`, the gradient for its result."""
    if approximate == "none":
        return _map_pair(_gelu_backward, g, input)
    return _map_pair(_gelu_tanh_backward, g, input, 1.0, _TANH_SCALE, _TANH_CUBIC, 3 * _TANH_CUBIC)


def silu(input: Array) -> Array:
    """x * sigmoid(x)."""
    return _map(_silu, input, 1.0)


def silu_backward(g: Array, input: Array) -> Array:
    """The gradient of `silu` for `input`."""
    return _map_pair(_silu_backward, g, input, 1.0)


def leaky_relu(input: Array, negative_slope: float = 0.01) -> Array:
    """x where positive, else x * negative_slope."""
    return _map(_leaky_relu, input, negative_slope)


def leaky_relu_backward(g: Array, input: Array, negative_slope: float) -> Array:
    """The gradient of `leaky_relu` for `input`."""
    return _map_pair(_leaky_relu_backward, g, input, negative_slope)


def scaled_elu(input: Array, alpha: float, scale: float, input_scale: float) -> Array:
    """scale times x where positive, else times alpha * (exp(x * input_scale) - 1)."""
    return _map(_scaled_elu, input, alpha, scale, input_scale)


def scaled_elu_backward(g: Array, input: Array, alpha: float, scale: float, input_scale: float) -> Array:
    """The gradient of `scaled_elu` for `input`."""
    return _map_pair(_scaled_elu_backward, g, input, alpha * scale * input_scale, scale, input_scale)


def softplus(input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above `threshold`."""
    return _map(_softplus, input, beta, threshold)


def softplus_backward(g: Array, input: Array, beta: float, threshold: float) -> Array:
    """The gradient of `softplus` for `input`."""
    return _map_pair(_softplus_backward, g, input, beta, threshold, 1.0)


def sigmoid(input: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return NotImplemented if input.size < _SMALL else _map(_sigmoid, input, 1.0)


def sigmoid_backward(g: Array, out: Array) -> Array:
    """The gradient of `sigmoid` for its input, from its result."""
    return _map_pair(_sigmoid_backward, g, out, 1.0)


def hardshrink(input: Array, lambd: float = 0.5) -> Array:
    """x where |x| is above `lambd`, else 0."""
    return _map(_hardshrink, input, lambd)


def softshrink(input: Array, lambd: float = 0.5) -> Array:
    """x moved towards 0 by `lambd`, and 0 within it."""
    return _map(_softshrink, input, lambd)


def shrink_backward(g: Array, input: Array, lambd: float) -> Array:
    """The gradient of `hardshrink` and of `softshrink` for `input`."""
    return _map_pair(_shrink_backward, g, input, lambd)


def threshold(input: Array, threshold: float, value: float) -> Array:
    """x where it is above `threshold`, else `value`."""
    return _map(_threshold, input, threshold, value)


def threshold_backward(g: Array, input: Array, threshold: float) -> Array:
    """The gradient of `threshold` for `input`."""
    return _map_pair(_threshold_backward, g, input, threshold)


def clamp(input: Array, min: Any = None, max: Any = None) -> Array:
    """x limited to [min, max]; None is no limit."""
    limits = _limits(min, max)
    if limits is None:
        return NotImplemented
    if input.size < _SMALL and input.dtype.kind == "f":
        out = input if min is None else np.maximum(input, min)
        return out if max is None else np.minimum(out, max)
    return _map(_clamp, input, *limits)


def clamp_backward(g: Array, input: Array, min: Any, max: Any) -> Array:
    """The gradient of `clamp` for `input`."""
    limits = _limits(min, max)
    return NotImplemented if limits is None else _map_pair(_clamp_backward, g, input, *limits)


def hardtanh_backward(g: Array, input: Array, min_val: float, max_val: float) -> Array:
    """The gradient of `hardtanh` for `input`: none at the limits."""
    return _map_pair(_hardtanh_backward, g, input, min_val, max_val)


def hardsigmoid(input: Array) -> Array:
    """x / 6 + 1/2, limited to [0, 1]."""
    return _map(_hardsigmoid, input, 1 / 6, 0.5)


def hardsigmoid_backward(g: Array, input: Array) -> Array:
    """The gradient of `hardsigmoid` for `input`."""
    return _map_pair(_hardsigmoid_backward, g, input, 1 / 6)


def hardswish(input: Array) -> Array:
    """x * min(max(x + 3, 0), 6) / 6."""
    return _map(_hardswish, input, 3.0, 6.0)


def hardswish_backward(g: Array, input: Array) -> Array:
    """The gradient of `hardswish` for `input`."""
    return _map_pair(_hardswish_backward, g, input, 3.0, 0.5)


def _limits(low: Any, high: Any) -> tuple[float, float] | None:
    """Both limits as numbers; None where they are arrays or NaN."""
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    numbers = isinstance(low, (int, float)) and isinstance(high, (int, float))
    return (low, high) if numbers and low == low and high == high else None


# -- loops -----------------------------------------------------------------------------------


def _map(element: Callable[..., Any], x: Array, *options: float) -> Any:
    """element(x, *options) of every element, options in the type of x; floats of 16 bits are computed in float32."""
    if not compiled_for(x):
        return _map_halves(_loop, element, options, x)
    out, flat, vectors = beside(x.dtype, x)
    _loop(element)(*vectors, tuple(map(x.dtype.type, options)), flat)
    return out


def _map_halves(loop: Any, element: Callable[..., Any], options: tuple[float, ...], *arrays: Array) -> Any:
    """`_map` and `_map_pair` of floats of 16 bits, which the loops read and write as they are stored."""
    from .half import is_half, stored

    x = arrays[-1]
    if (
        x.size < _SMALL
        or not is_half(x.dtype)
        or any(a.dtype != x.dtype or a.shape != x.shape for a in arrays)
    ):
        return NotImplemented
    prepare_narrow()
    out, flat, vectors = beside(x.dtype, *arrays)
    numbers = tuple([np.float32(option) for option in options])
    loop(element)(*[stored(vector) for vector in vectors], numbers, stored(flat))
    return out


def _map_pair(element: Callable[..., Any], g: Array, x: Array, *options: float) -> Any:
    """element(g, x, *options) of every pair of elements."""
    if not compiled_for(g, x):
        return _map_halves(_loop_over_pairs, element, options, g, x)
    numbers = tuple(map(x.dtype.type, options))
    if x.size > 1 and not any(g.strides) and g.shape == x.shape:  # one number, as the gradient of a mean
        out, flat, vectors = beside(x.dtype, x)
        _loop_under_one(element)(g[(0,) * g.ndim], *vectors, numbers, flat)
    else:
        out, flat, vectors = beside(x.dtype, g, x)
        _loop_over_pairs(element)(*vectors, numbers, flat)
    return out


@functools.cache
def _loop(element: Callable[..., Any]) -> Callable[..., None]:
    element = register_jitable(element)

    def loop(x, options, out):
        for i in range(x.size):
            out[i] = narrowed(element(widened(x[i]), *options), out)

    return shared("x", "out")(kernel(loop))


@functools.cache
def _loop_over_pairs(element: Callable[..., Any]) -> Callable[..., None]:
    element = register_jitable(element)

    def loop(g, x, options, out):
        for i in range(x.size):
            out[i] = narrowed(element(widened(g[i]), widened(x[i]), *options), out)

    return shared("g", "x", "out")(kernel(loop))


@functools.cache
def _loop_under_one(element: Callable[..., Any]) -> Callable[..., None]:
    element = register_jitable(element)

    def loop(g, x, options, out):
        for i in range(x.size):
            out[i] = element(g, x[i], *options)

    return shared("x", "out")(kernel(loop))


# -- elements --------------------------------------------------------------------------------
# A comparison with NaN is false, and lets x through.


def _relu(x, zero):
    return where(x <= zero, zero, x)


def _relu_backward(g, y, zero):
    return where(y <= zero, zero, g)


def _gelu(x):
    return x * normal(x)[0]


def _gelu_backward(g, x):
    below, density = normal(x)
    return g * (below + x * density)


def _gelu_tanh(x, one, scale, cubic):
    u = scale * x * (one + cubic * x * x)
    return x / (one + exp(-u))


def _gelu_tanh_backward(g, x, one, scale, cubic, cubic3):
    u = scale * x * (one + cubic * x * x)
    s = one / (one + exp(-u))
    return g * (s + x * s * (one - s) * scale * (one + cubic3 * x * x))


def _silu(x, one):
    return x / (one + exp(-x))


def _silu_backward(g, x, one):
    s = one / (one + exp(-x))
    return g * s * (one + x * (one - s))


def _leaky_relu(x, slope):
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


def _softplus_backward(g, x, beta, threshold, one):
    scaled = x * beta
    small = exp_of_negative(-abs(scaled))
    share = where(scaled > 0, one, small) / (one + small)
    return where(scaled > threshold, g, g * share)


def _sigmoid(x, one):
    return one / (one + exp(-x))


def _sigmoid_backward(g, y, one):
    return g * y * (one - y)


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


def _clamp(x, low, high):
    above = where(x < low, low, x)
    return where(above > high, high, above)


def _clamp_backward(g, x, low, high):
    return where((x >= low) & (x <= high), g, 0)


def _hardtanh_backward(g, x, low, high):
    return where((x <= low) | (x >= high), 0, g)


def _hardsigmoid(x, sixth, half):
    gate = x * sixth + half
    return where(gate < 0, 0, where(gate > 1, 1, gate))


def _hardsigmoid_backward(g, x, sixth):
    return where(abs(x) < 3, g * sixth, 0)


def _hardswish(x, three, six):
    gate = x + three
    gate = where(gate < 0, 0, gate)
    return x * where(gate > six, six, gate) / six


def _hardswish_backward(g, x, three, half):
    slope = where(x <= -three, 0, x / three + half)
    return g * where(x >= three, 1, slope)
