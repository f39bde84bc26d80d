"""Activations and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ..dispatch.declare import composite, op
from ..dispatch.samples import along, calls, one
from ..reduction.reduce import wrap_dim


def _check_relu(input: Tensor) -> None:
    if input.dtype.category in (0, 3):
        raise NotImplementedError(f"relu(): not implemented for '{input.dtype.scalar_type}'")


@op(
    grads={"input": lambda F, g, out: F.relu_backward(g, out)},
    check=_check_relu,
    samples=one(),
    reference=lambda x: np.maximum(x, 0),
    inplace=True,
)
def relu(F: Any, input: Tensor) -> Tensor:
    """max(input, 0)."""
    return F.maximum(input, 0)


@composite
def relu_backward(F: Any, g: Any, out: Any) -> Any:
    """The gradient of `relu`: `g` where the output is positive or NaN."""
    return F.where(out <= 0, F.full_like(g, 0), g)


@op(
    grads={"input": lambda F, g, input, negative_slope: F.leaky_relu_backward(g, input, negative_slope)},
    samples=calls((), (0.2,)),
    reference=lambda x, s=0.01: np.where(x > 0, x, x * s),
    method=False,
)
def leaky_relu(F: Any, input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else input * negative_slope."""
    return F.where(input > 0, input, input * negative_slope)


@composite
def leaky_relu_backward(F: Any, g: Any, input: Any, negative_slope: float) -> Any:
    """The gradient of `leaky_relu`."""
    return F.where(input > 0, g, g * negative_slope)


@op(
    grads={"input": lambda F, g, input, alpha: F.scaled_elu_backward(g, input, alpha, 1.0, 1.0)},
    samples=calls((), (0.5,)),
    reference=lambda x, a=1.0: np.where(x > 0, x, a * np.expm1(x)),
    method=False,
)
def elu(F: Any, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input) - 1)."""
    return F.scaled_elu(input, alpha, 1.0, 1.0)


# The fixed point of self-normalising networks: https://arxiv.org/abs/1706.02515
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@op(
    grads={"input": lambda F, g, input: F.scaled_elu_backward(g, input, _SELU_ALPHA, _SELU_SCALE, 1.0)},
    samples=one(),
    reference=lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(x)),
    method=False,
    grad_name="EluBackward0",
)
def selu(F: Any, input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the scale and alpha that keep activations at mean 0 and variance 1 (https://arxiv.org/abs/1706.02515)."""
    return F.scaled_elu(input, _SELU_ALPHA, _SELU_SCALE, 1.0)


@composite
def scaled_elu(F: Any, input: Any, alpha: float, scale: float, input_scale: float) -> Any:
    """`scale` times input where positive, else times alpha * (exp(input * input_scale) - 1)."""
    return F.where(input > 0, input, alpha * F.expm1(F.minimum(input, 0) * input_scale)) * scale


@composite
def scaled_elu_backward(F: Any, g: Any, input: Any, alpha: float, scale: float, input_scale: float) -> Any:
    """The gradient of `scaled_elu`."""
    below = F.minimum(input, F.full_like(input, 0))
    return F.where(input > 0, g * scale, g * (alpha * scale * input_scale) * F.exp(below * input_scale))


@op(
    grads={"input": lambda F, g, input, beta, threshold: F.softplus_backward(g, input, beta, threshold)},
    samples=calls((), (2.0, 1.0)),
    reference=lambda x, b=1.0, t=20.0: np.where(x * b > t, x, np.log1p(np.exp(x * b)) / b),
    method=False,
)
def softplus(F: Any, input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; input itself where that is above threshold / beta."""
    scaled = input * beta
    soft = (F.maximum(scaled, 0) + F.log1p(F.exp(-F.abs(scaled)))) / beta
    return F.where(scaled > threshold, input, soft)


@composite
def softplus_backward(F: Any, g: Any, input: Any, beta: float, threshold: float) -> Any:
    """The gradient of `softplus`."""
    return F.where(input * beta > threshold, g, g * F.sigmoid(input * beta))


@op(
    grads={"input": lambda F, g, input, lambd: F.shrink_backward(g, input, lambd)},
    samples=calls((), (0.8,)),
    reference=lambda x, lambd=0.5: np.where(np.abs(x) <= lambd, 0, x),
)
def hardshrink(F: Any, input: Tensor, lambd: float = 0.5) -> Tensor:
    """input where |input| is above `lambd`, else 0."""
    return F.where(F.abs(input) <= lambd, F.full_like(input, 0), input)


def _check_softshrink(input: Tensor, lambd: float) -> None:
    if lambd < 0:
        raise RuntimeError(
            f"lambda must be in range [0, {dtypes.largest(input.dtype)}] for input dtype {input.dtype.scalar_type}, "
            f"but found {lambd}."
        )


@op(
    grads={"input": lambda F, g, input, lambd: F.shrink_backward(g, input, lambd)},
    check=_check_softshrink,
    samples=calls((), (0.8,)),
    reference=lambda x, lambd=0.5: np.sign(x) * np.maximum(np.abs(x) - lambd, 0),
    method=False,
)
def softshrink(F: Any, input: Tensor, lambd: float = 0.5) -> Tensor:
    """input moved towards 0 by `lambd`, and 0 within it."""
    return input - F.clamp(input, -lambd, lambd)


@composite
def shrink_backward(F: Any, g: Any, input: Any, lambd: float) -> Any:
    """The gradient of `hardshrink` and of `softshrink`."""
    return F.where(F.abs(input) <= lambd, F.full_like(g, 0), g)


@op(
    grads={"input": lambda F, g, input, threshold: F.threshold_backward(g, input, threshold)},
    samples=calls((0.3, -2.0)),
    reference=lambda x, threshold, value: np.where(x <= threshold, value, x),
    method=False,
    inplace=True,
)
def threshold(F: Any, input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above `threshold`, else `value`."""
    return F.where(input <= threshold, F.full_like(input, value), input)


@composite
def threshold_backward(F: Any, g: Any, input: Any, threshold: float) -> Any:
    """The gradient of `threshold`."""
    return F.where(input <= threshold, F.full_like(g, 0), g)


def _within(F: Any, g: Any, input: Any, slope: Any) -> Any:
    """g times `slope` for inputs in (-3, 3), where the hard forms of sigmoid and swish bend; 0 elsewhere."""
    return F.where(F.abs(input) < 3, g * slope, F.full_like(g, 0))


@op(
    grads={"input": lambda F, g, input: F.hardsigmoid_backward(g, input)},
    samples=calls((), shape=(4, 5)),
    reference=lambda x: np.clip(x + 3, 0, 6) / 6,
    method=False,
)
def hardsigmoid(F: Any, input: Tensor, inplace: bool = False) -> Tensor:
    """input / 6 + 1/2, limited to [0, 1]."""
    return F.clamp(input / 6 + 0.5, 0, 1)


@composite
def hardsigmoid_backward(F: Any, g: Any, input: Any) -> Any:
    """The gradient of `hardsigmoid`."""
    return _within(F, g, input, 1 / 6)


@op(
    grads={"input": lambda F, g, input: F.hardswish_backward(g, input)},
    samples=calls((), shape=(4, 5)),
    reference=lambda x: x * np.clip(x + 3, 0, 6) / 6,
    method=False,
)
def hardswish(F: Any, input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input) (https://arxiv.org/abs/1905.02244)."""
    return input * F.clamp(input + 3, 0, 6) / 6


@composite
def hardswish_backward(F: Any, g: Any, input: Any) -> Any:
    """The gradient of `hardswish`."""
    sloping = F.where(input <= -3, F.full_like(g, 0), g * (input / 3 + 0.5))
    return F.where(input >= 3, g, sloping)


@op(
    grads={"input": lambda F, g, input, alpha: F.scaled_elu_backward(g, input, alpha, 1.0, 1 / alpha)},
    samples=calls((), (0.5,)),
    reference=lambda x, a=1.0: np.where(x > 0, x, a * np.expm1(x / a)),
    method=False,
    inplace=True,
)
def celu(F: Any, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input / alpha) - 1) (https://arxiv.org/abs/1704.07483)."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return F.scaled_elu(input, alpha, 1.0, 1 / alpha)


@op(
    grads={"input": lambda F, g, input: F.mish_backward(g, input)},
    samples=one(),
    reference=lambda x: x * np.tanh(np.log1p(np.exp(x))),
    method=False,
)
def mish(F: Any, input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)) (https://arxiv.org/abs/1908.08681)."""
    return input * F.tanh(F.softplus(input, 1.0, 20.0))


@composite
def mish_backward(F: Any, g: Any, input: Any) -> Any:
    """The gradient of `mish`."""
    t = F.tanh(F.softplus(input, 1.0, 20.0))
    return g * (t + input * F.sigmoid(input) * (1 - t * t))


_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _np_gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(_SQRT_2_OVER_PI * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x * _SQRT_HALF))


def _adapt_gelu(input: Tensor, approximate: str = "none") -> tuple[Any, ...]:
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"gelu(): approximate argument must be either none or tanh, got {approximate!r}")
    return input, approximate


@op(
    grads={"input": lambda F, g, input, approximate: F.gelu_backward(g, input, approximate)},
    adapt=_adapt_gelu,
    samples=calls((), ("tanh",)),
    reference=_np_gelu,
    method=False,
)
def gelu(F: Any, input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution function of input (https://arxiv.org/abs/1606.08415)."""
    if approximate == "tanh":
        return 0.5 * input * (1 + F.tanh(_SQRT_2_OVER_PI * (input + 0.044715 * input * input * input)))
    return 0.5 * input * (1 + F.erf(input * _SQRT_HALF))


@composite
def gelu_backward(F: Any, g: Any, input: Any, approximate: str) -> Any:
    """The gradient of `gelu`."""
    if approximate == "tanh":
        t = F.tanh(_SQRT_2_OVER_PI * (input + 0.044715 * input * input * input))
        inner = _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * input * input)
        return g * (0.5 * (1 + t) + 0.5 * input * (1 - t * t) * inner)
    density = F.exp(-0.5 * input * input) * (1 / math.sqrt(2 * math.pi))
    return g * (0.5 * (1 + F.erf(input * _SQRT_HALF)) + input * density)


@op(
    grads={"input": lambda F, g, input: F.silu_backward(g, input)},
    samples=one(),
    reference=lambda x: x / (1 + np.exp(-x)),
    method=False,
)
def silu(F: Any, input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return input * F.sigmoid(input)


@composite
def silu_backward(F: Any, g: Any, input: Any) -> Any:
    """The gradient of `silu`."""
    s = F.sigmoid(input)
    return g * (s + input * s * (1 - s))


def _halves(F: Any, input: Any, dim: int) -> tuple[Any, Any]:
    half = input.shape[dim] // 2
    return F.narrow(input, dim, 0, half), F.narrow(input, dim, half, half)


def _adapt_glu(input: Tensor, dim: int) -> tuple[Any, ...]:
    if not input.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}: glu() takes a gate for "
            "each element"
        )
    return input, wrap_dim("glu", dim, input.ndim)


@op(
    grads={"input": lambda F, g, input, dim: F.glu_backward(g, input, dim)},
    adapt=_adapt_glu,
    samples=calls((0,), (-1,)),
    reference=lambda x, dim=-1: np.split(x, 2, dim)[0] / (1 + np.exp(-np.split(x, 2, dim)[1])),
    method=False,
)
def glu(F: Any, input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second (https://arxiv.org/abs/1612.08083)."""
    first, second = _halves(F, input, dim)
    return first * F.sigmoid(second)


@composite
def glu_backward(F: Any, g: Any, input: Any, dim: int) -> Any:
    """The gradient of `glu`."""
    first, second = _halves(F, input, dim)
    gate = F.sigmoid(second)
    passed = g * gate
    return F.cat([passed, passed * first * (1 - gate)], dim)


def _adapt_softmax(input: Tensor, dim: int, dtype: Any = None) -> tuple[Any, ...]:
    if dim is None:
        raise TypeError("softmax(): dim must be given; for a matrix of scores, one row each, pass dim=-1")
    kind = input.dtype if dtype is None else dtypes.of(dtype)
    if kind.category != 2:
        raise NotImplementedError(
            f"softmax(): not implemented for '{kind.scalar_type}'. Use x.float(), or a floating-point `dtype`."
        )
    return input, wrap_dim("softmax", dim, input._array.ndim), None if dtype is None else kind


def _np_softmax(x: Any, dim: int) -> Any:
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


@op(
    grads={"input": lambda F, g, out, dim: F.softmax_backward(g, out, dim)},
    adapt=_adapt_softmax,
    samples=along,
    reference=_np_softmax,
)
def softmax(F: Any, input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input) normalised to sum 1 along `dim`, computed in `dtype` if given."""
    if dtype is not None:
        return F.softmax(F.cast(input, dtype), dim)
    if 0 in input.shape:  # there is no largest of none
        return F.clone(input)
    # The result lies in order of its dimensions, as PyTorch's does: dropout may follow.
    input = F.to_contiguous(input)
    e = F.exp(input - F.amax(input, dim, True))
    return e / F.sum(e, dim, True)


@composite
def softmax_backward(F: Any, g: Any, out: Any, dim: int) -> Any:
    """The gradient of `softmax`."""
    return out * (g - F.sum(g * out, dim, True))


@op(
    grads={"input": lambda F, g, out, dim: F.log_softmax_backward(g, out, dim)},
    adapt=_adapt_softmax,
    samples=along,
    reference=lambda x, dim: np.log(_np_softmax(x, dim)),
)
def log_softmax(F: Any, input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`, without underflow."""
    if dtype is not None:
        return F.log_softmax(F.cast(input, dtype), dim)
    if 0 in input.shape:
        return F.clone(input)
    input = F.to_contiguous(input)
    shifted = input - F.amax(input, dim, True)
    return shifted - F.log(F.sum(F.exp(shifted), dim, True))


@composite
def log_softmax_backward(F: Any, g: Any, out: Any, dim: int) -> Any:
    """The gradient of `log_softmax`."""
    return g - F.exp(out) * F.sum(g, dim, True)
