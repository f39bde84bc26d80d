"""Activations as functions, in place where asked."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from ...backend.dtype import float64
from ...core.tensor import Tensor
from ...ops.creation.factories import from_numpy, ones_like
from ...ops.dispatch.inplace import inplace as in_place
from ...ops.dispatch.inplace import inplace_function
from ...ops.dispatch.tensor_function import takes_out
from ...ops.elementwise import activation as ops
from ...ops.elementwise import conversion
from ...ops.elementwise.binary import where
from ...ops.elementwise.unary import abs as magnitude
from ...ops.elementwise.unary import clamp, log, tanh
from ...ops.indexing.scatter import scatter
from ...ops.reduction.reduce import argmax
from ...ops.shape.shape import reshape
from ...random import default_generator

# The fixed point of self-normalising networks: https://arxiv.org/abs/1706.02515
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _apply(op: Any, input: Tensor, inplace: bool, *options: Any) -> Tensor:
    return in_place(op.op)(input, *options) if inplace else op(input, *options)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)."""
    return _apply(ops.relu, input, True) if inplace else ops.relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else input * negative_slope."""
    return _apply(ops.leaky_relu, input, inplace, negative_slope)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """input where positive, else input times a slope: in training one in [lower, upper) for each element, else the mean.

    Source: https://arxiv.org/abs/1505.00853
    """
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    if lower > upper:
        raise RuntimeError(f"rrelu(): lower bound {lower} must not be above upper bound {upper}")
    below = input.detach() <= 0
    drawn = default_generator().uniform((int(below.sum()),), float64, lower, upper)
    slope = ones_like(input)
    slope[below] = from_numpy(drawn).to(input.device, input.dtype)
    return _rrelu_(input, slope) if inplace else _sloped(input, slope)


def _sloped(input: Tensor, slope: Tensor) -> Tensor:
    return where(input > 0, input, input * slope)


_rrelu_ = inplace_function("rrelu", _sloped)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where positive, else input * weight: one slope, or one for each channel (dimension 1)."""
    slopes = weight.numel()
    if slopes > 1:
        channels = input.shape[1] if input.ndim > 1 else input.shape[0] if input.ndim else 1
        if slopes != channels:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {slopes} and channel "
                f"size = {channels}."
            )
        weight = reshape(weight, (-1,) + (1,) * max(input.ndim - 2, 0))
    elif not input.ndim:
        weight = reshape(weight, ())
    return _sloped(input, weight)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input) - 1)."""
    return _apply(ops.elu, input, inplace, alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input / alpha) - 1)."""
    return _apply(ops.celu, input, inplace, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the scale and alpha that keep activations at mean 0 and variance 1 (https://arxiv.org/abs/1706.02515)."""
    return _selu_(input) if inplace else _selu(input)


def _selu(input: Tensor) -> Tensor:
    return ops.elu(input, _SELU_ALPHA, _SELU_SCALE)


_selu_ = inplace_function("selu", _selu)


@takes_out
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution function of input; approximate: "none" or "tanh"."""
    return ops.gelu(input, approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return _apply(ops.silu, input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))."""
    return _apply(ops.mish, input, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input)."""
    return _apply(ops.hardswish, input, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """input / 6 + 1/2, limited to [0, 1]."""
    return _apply(ops.hardsigmoid, input, inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val, got {min_val} and {max_val}")
    return _apply(clamp, input, inplace, min_val, max_val)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """input limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above `threshold`, else `value`."""
    return _apply(ops.threshold, input, inplace, threshold, value)


@takes_out
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """input moved towards 0 by `lambd`, and 0 within it."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return ops.softshrink(input, lambd)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - tanh(input)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (magnitude(input) + 1)


@takes_out
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), without overflow."""
    return -ops.softplus(-input, 1.0, float("inf"))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second (https://arxiv.org/abs/1612.08083)."""
    if not input.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}: glu() takes a gate for "
            "each element"
        )
    return ops.glu(input, dim)


def _chosen(name: str, dim: int | None, input: Tensor, stacklevel: int) -> int:
    """`dim`, or what PyTorch takes when it is not given: 1 for 2 or at least 4 dimensions, else 0."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel + 1,
    )
    return 0 if input.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) normalised to sum 1 along `dim`, computed in `dtype` if given."""
    return conversion.softmax(input, _chosen("softmax", dim, input, _stacklevel), dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`, without underflow."""
    return conversion.log_softmax(input, _chosen("log_softmax", dim, input, _stacklevel), dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-input)."""
    return conversion.softmax(-input, _chosen("softmin", dim, input, _stacklevel), dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution: soft, or with `hard` one-hot with the soft sample's gradient.

    tau: the temperature. Source: https://arxiv.org/abs/1611.01144
    """
    noise = from_numpy(default_generator().exponential(tuple(logits.shape), logits.dtype)).to(logits.device)
    soft = conversion.softmax((logits - log(noise)) / tau, dim)
    if not hard:
        return soft
    picked = scatter(soft.detach() * 0, dim, argmax(soft, dim, True), 1.0)
    return picked - soft.detach() + soft


celu_, elu_, hardtanh_, leaky_relu_, relu_, rrelu_, selu_, threshold_ = (
    functools.partial(function, inplace=True)
    for function in (celu, elu, hardtanh, leaky_relu, relu, rrelu, selu, threshold)
)
