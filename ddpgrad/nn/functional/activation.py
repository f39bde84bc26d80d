"""Activation functions composed of ops, and the in-place form of each."""

from __future__ import annotations

import functools
from typing import Any

from ... import Tensor, argmax, empty_like, float64, from_numpy, log, ones_like, reshape, scatter, tanh
from ...core.errors import warn_program
from ...ops.dispatch.inplace import inplace, takes_inplace
from ...ops.dispatch.node import guarded
from ...ops.dispatch.tensor_function import takes_out
from ...ops.elementwise import activation, unary
from ...ops.elementwise.activation import leaky_relu, softplus
from ...ops.elementwise.bitwise import prelu_kernel
from ...random import rank_generator


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)."""
    return relu_(input) if inplace else activation.relu(input)


@takes_inplace
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """input where positive, else input times a slope: in training one in [lower, upper) for each element, else the mean.

    Source: https://arxiv.org/abs/1505.00853
    """
    if lower > upper:
        raise RuntimeError(
            f"rrelu(): Lower bound should be less than or equal to the upper bound, got {lower} and {upper}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    below = input.detach() <= 0
    slope = ones_like(input)
    if not input.is_meta:  # there nobody knows how many are drawn
        drawn = rank_generator().uniform((int(below.sum()),), float64, lower, upper)
        slope[below] = from_numpy(drawn).to(input.device, input.dtype)
    return input * slope


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where positive, else input * weight: one slope, or one for each channel (dimension 1)."""
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {input.dtype.scalar_type} and {weight.dtype.scalar_type}"
        )
    slopes = weight.numel()
    if weight.ndim > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    if slopes > 1:
        if not input.ndim:
            raise RuntimeError(f"prelu: Not allow zero-dim input tensor. There are {slopes} slopes.")
        channels = input.shape[1] if input.ndim > 1 else 1
        if slopes != channels:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {slopes} and channel "
                f"size = {channels}."
            )
        weight = reshape(weight, (-1,) + (1,) * max(input.ndim - 2, 0))
    elif not input.ndim:
        weight = reshape(weight, ())
    return prelu_kernel(input, weight)


@takes_inplace
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """input limited to [0, 6]."""
    return unary.hardtanh(input, 0.0, 6.0)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - tanh(input)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (unary.abs(input) + 1)


@takes_out
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), without overflow."""
    return guarded(-softplus(-input, 1.0, float("inf")), input)


def _chosen(name: str, dim: int | None, input: Tensor) -> int:
    """`dim`, or what PyTorch takes when it is not given: 1 for 2 or at least 4 dimensions, else 0."""
    if dim is not None:
        return dim
    warn_program(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument."
    )
    return 0 if input.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) normalised to sum 1 along `dim`, computed in `dtype` if given."""
    return activation.softmax(input, _chosen("softmax", dim, input), dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`, without underflow."""
    return activation.log_softmax(input, _chosen("log_softmax", dim, input), dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-input)."""
    return activation.softmax(-input, _chosen("softmin", dim, input), dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution: soft, or with `hard` one-hot with the soft sample's gradient.

    tau: the temperature. Source: https://arxiv.org/abs/1611.01144
    """
    if eps != 1e-10:
        warn_program("`eps` parameter is deprecated and has no effect.")
    noise = empty_like(logits).exponential_()
    soft = activation.softmax((logits - log(noise)) / tau, dim)
    if not hard:
        return soft
    picked = scatter(soft.detach() * 0, dim, argmax(soft, dim, True), 1.0)
    return picked - soft.detach() + soft


celu_, elu_, hardtanh_, leaky_relu_, relu_, selu_, threshold_ = (
    inplace(op.__dict__["op"])
    for op in (
        activation.celu, activation.elu, unary.hardtanh, leaky_relu, activation.relu, activation.selu, activation.threshold,
    )
)  # fmt: skip
rrelu_ = functools.partial(rrelu, inplace=True)
