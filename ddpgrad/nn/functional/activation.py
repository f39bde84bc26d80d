"""Activations as functions, in place where asked."""

from __future__ import annotations

from typing import Any

from ..._tensor import Tensor
from ...ops import activation as ops
from ...ops.composed import chunk, softmax
from ...ops.elementwise import clamp, sigmoid, tanh
from ...ops.inplace import inplace as in_place


def _apply(op: Any, input: Tensor, inplace: bool, *options: Any) -> Tensor:
    return in_place(op.op)(input, *options) if inplace else op(input, *options)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)."""
    return _apply(ops.relu, input, True) if inplace else ops.relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else input * negative_slope."""
    return _apply(ops.leaky_relu, input, inplace, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input) - 1)."""
    return _apply(ops.elu, input, inplace, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution function of input; approximate: "none" or "tanh"."""
    return ops.gelu(input, approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return _apply(ops.silu, input, inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val, got {min_val} and {max_val}")
    return _apply(clamp, input, inplace, min_val, max_val)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """input limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), without overflow."""
    return -ops.softplus(-input, 1.0, float("inf"))


def mish(input: Tensor) -> Tensor:
    """input * tanh(softplus(input)) (https://arxiv.org/abs/1908.08681)."""
    return input * tanh(ops.softplus(input))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second (https://arxiv.org/abs/1612.08083)."""
    if input.shape[dim] % 2:
        raise RuntimeError(f"glu(): dimension {dim} must have an even size, got {input.shape[dim]}")
    first, second = chunk(input, 2, dim)
    return first * sigmoid(second)


def softmin(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax(-input)."""
    return softmax(-input, dim, dtype)
