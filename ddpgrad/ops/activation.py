"""Activations and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._tensor import Tensor
from .declare import composite, op
from .elementwise import _vectorized_erf as np_erf
from .reduce import wrap_dim
from .samples import along, calls, one


@op(
    grads={"input": lambda F, g, out: F.relu_backward(g, out)},
    samples=one(),
    reference=lambda x: np.maximum(x, 0),
    inplace=True,
)
def relu(F: Any, input: Tensor) -> Tensor:
    """max(input, 0)."""
    return F.maximum(input, 0)


@composite
def relu_backward(F: Any, g: Any, out: Any) -> Any:
    """The gradient of `relu`: `g` where the output is positive."""
    return F.where(out > 0, g, F.full_like(g, 0))


@op(
    grads={"input": lambda F, g, input, negative_slope: F.where(input > 0, g, g * negative_slope)},
    samples=calls((), (0.2,)),
    reference=lambda x, s=0.01: np.where(x > 0, x, x * s),
    method=False,
)
def leaky_relu(F: Any, input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """input where positive, else input * negative_slope."""
    return F.where(input > 0, input, input * negative_slope)


@op(
    grads={
        "input": lambda F, g, input, alpha: F.where(
            input > 0, g, g * alpha * F.exp(F.minimum(input, F.full_like(input, 0)))
        )
    },
    samples=calls((), (0.5,)),
    reference=lambda x, a=1.0: np.where(x > 0, x, a * np.expm1(x)),
    method=False,
)
def elu(F: Any, input: Tensor, alpha: float = 1.0) -> Tensor:
    """input where positive, else alpha * (exp(input) - 1)."""
    return F.where(input > 0, input, alpha * F.expm1(F.minimum(input, 0)))


@op(
    grads={
        "input": lambda F, g, input, beta, threshold: F.where(
            input * beta > threshold, g, g * F.sigmoid(input * beta)
        )
    },
    samples=calls((), (2.0, 1.0)),
    reference=lambda x, b=1.0, t=20.0: np.where(x * b > t, x, np.log1p(np.exp(x * b)) / b),
    method=False,
)
def softplus(F: Any, input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; input itself where that is above threshold / beta."""
    scaled = input * beta
    soft = (F.maximum(scaled, 0) + F.log1p(F.exp(-F.abs(scaled)))) / beta
    return F.where(scaled > threshold, input, soft)


_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _np_gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(_SQRT_2_OVER_PI * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np_erf(x * _SQRT_HALF))


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
def silu(F: Any, input: Tensor) -> Tensor:
    """input * sigmoid(input)."""
    return input * F.sigmoid(input)


@composite
def silu_backward(F: Any, g: Any, input: Any) -> Any:
    """The gradient of `silu`."""
    s = F.sigmoid(input)
    return g * (s + input * s * (1 - s))


def _adapt_softmax(input: Tensor, dim: int) -> tuple[Any, ...]:
    if dim is None:
        raise TypeError("softmax(): dim must be given; for a matrix of scores, one row each, pass dim=-1")
    return input, wrap_dim("softmax", dim, input.ndim)


def _np_softmax(x: Any, dim: int) -> Any:
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


@op(
    grads={"input": lambda F, g, out, dim: F.softmax_backward(g, out, dim)},
    adapt=_adapt_softmax,
    samples=along,
    reference=_np_softmax,
)
def softmax(F: Any, input: Tensor, dim: int) -> Tensor:
    """exp(input) normalised to sum 1 along `dim`."""
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
def log_softmax(F: Any, input: Tensor, dim: int) -> Tensor:
    """The logarithm of `softmax`, without underflow."""
    shifted = input - F.amax(input, dim, True)
    return shifted - F.log(F.sum(F.exp(shifted), dim, True))


@composite
def log_softmax_backward(F: Any, g: Any, out: Any, dim: int) -> Any:
    """The gradient of `log_softmax`."""
    return g - F.exp(out) * F.sum(g, dim, True)
