"""Initialisation of parameters, in place, from PyTorch's random streams.

Source: https://pytorch.org/docs/stable/nn.init.html
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import Generator, Tensor, fill_, from_numpy, no_grad
from ..core.errors import warn_program
from ..core.overrides import overridable
from ..ops.indexing.setitem import copy_
from ..random import rank_generator


def _fill(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run without recording, as initial values have no history."""

    @overridable
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Tensor:
        with no_grad():
            return function(*args, **kwargs)

    return wrapper


_CONVOLUTIONS = tuple(f"conv{kind}{d}d" for kind in ("", "_transpose") for d in (1, 2, 3))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much a nonlinearity shrinks the variance of its input, as the factor that undoes it."""
    if nonlinearity in ("linear", "sigmoid", *_CONVOLUTIONS):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "selu":
        return 3.0 / 4
    if nonlinearity == "leaky_relu":
        if isinstance(param, bool) or not isinstance(param, (int, float, type(None))):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    raise ValueError(
        f"Unsupported nonlinearity {nonlinearity!r}; known are linear, sigmoid, {', '.join(_CONVOLUTIONS)}, tanh, "
        "relu, leaky_relu, selu"
    )


def fans(tensor: Tensor) -> tuple[int, int]:
    """(inputs of an output, outputs of an input) of a weight (out, in, *kernel)."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


@_fill
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Numbers in [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@_fill
def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal numbers."""
    return tensor.normal_(mean, std, generator=generator)


@_fill
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers within [a, b], others drawn again."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warn_program(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect."
        )
    if tensor.is_meta:
        return tensor
    source = generator or rank_generator()
    shape, dtype = tuple(tensor.shape), tensor.dtype.numpy
    below_a, below_b = (math.erf((edge - mean) / std / math.sqrt(2.0)) / 2 for edge in (a, b))
    if below_b - below_a > 0.3:
        values = _reject(
            lambda: source.normal(shape, dtype, mean, std),
            lambda drawn: (drawn >= dtype.type(a)) & (drawn <= dtype.type(b)),
        )
    else:
        # Few normal numbers would fall inside: accept uniform ones as often as their density says.
        peak = ((max(a, min(mean, b)) - mean) / std) ** 2
        values = _reject(
            lambda: source.uniform(shape, dtype, a, b),
            lambda drawn: np.log(source.uniform(shape, dtype)) <= (peak - ((drawn - mean) / std) ** 2) / 2,
        )
    return copy_(tensor, from_numpy(values))


def _reject(draw: Callable[[], np.ndarray], accept: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Draw arrays until every element has been accepted once."""
    values = draw()
    with np.errstate(divide="ignore"):  # the logarithm of 0 is accepted, rightly
        pending = ~accept(values)
        while pending.any():
            drawn = draw()
            values = np.where(pending, drawn, values)
            pending &= ~accept(drawn)
    return values


@_fill
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    return fill_(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


@_fill
def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return copy_(tensor, from_numpy(np.eye(*tensor.shape)))


@_fill
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight (out, in, *kernel) that hands its input on, channel by channel, in each group."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out, channels = tensor.shape[:2]
    if out % groups:
        raise ValueError(f"dim 0 must be divisible by groups: {out} and {groups}")
    values = np.zeros(tuple(tensor.shape))
    per_group = out // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    for i in range(out):
        if i % per_group < channels:
            values[(i, i % per_group, *centre)] = 1
    return copy_(tensor, from_numpy(values))


@_fill
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers of variance gain**2 * 2 / (fan_in + fan_out) (Glorot & Bengio, 2010)."""
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return tensor.uniform_(-bound, bound, generator=generator)


@_fill
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers of variance gain**2 * 2 / (fan_in + fan_out) (Glorot & Bengio, 2010)."""
    return tensor.normal_(0.0, _xavier_std(tensor, gain), generator=generator)


def _xavier_std(tensor: Tensor, gain: float) -> float:
    fan_in, fan_out = fans(tensor)
    return gain * math.sqrt(2.0 / float(fan_in + fan_out))


@_fill
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform numbers of variance gain**2 / fan (https://arxiv.org/abs/1502.01852)."""
    if tensor.numel() == 0:
        return _empty(tensor)
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor.uniform_(-bound, bound, generator=generator)


@_fill
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers of variance gain**2 / fan (https://arxiv.org/abs/1502.01852)."""
    if tensor.numel() == 0:
        return _empty(tensor)
    return tensor.normal_(0, _kaiming_std(tensor, a, mode, nonlinearity), generator=generator)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return fans(tensor)[mode == "fan_out"]


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def _empty(tensor: Tensor) -> Tensor:
    warn_program("Initializing zero-element tensors is a no-op")
    return tensor


@_fill
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normal numbers in a matrix, of which a share `sparsity` of each column is 0 (Martens, 2010)."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    if tensor.is_meta:
        return tensor
    rows, columns = tensor.shape
    source = generator or rank_generator()
    values = source.normal((rows, columns), tensor.dtype.numpy, 0, std)
    for column in range(columns):
        # The order of the rows comes from the default generator, also when another one is given.
        values[rank_generator().permutation(rows)[: math.ceil(sparsity * rows)], column] = 0
    return copy_(tensor, from_numpy(values))


@_fill
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """A (semi-)orthogonal matrix (first dimension, all others), times `gain` (arXiv:1312.6120)."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = (generator or rank_generator()).normal((rows, columns), tensor.dtype.numpy)
    wide = rows < columns
    q, r = np.linalg.qr(drawn.T if wide else drawn)
    q = q * np.sign(np.diagonal(r))  # makes the decomposition unique, and so the draw uniform
    return copy_(tensor, from_numpy(np.ascontiguousarray(q.T if wide else q).reshape(tensor.shape) * gain))


def _deprecated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function under its former name, without the underscore."""
    name = function.__name__

    def old(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    old.__name__, old.__doc__ = name[:-1], f"The former name of `{name}`."
    return old


uniform, normal, constant, eye, dirac = map(_deprecated, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal = map(_deprecated, (xavier_uniform_, xavier_normal_))
kaiming_uniform, kaiming_normal = map(_deprecated, (kaiming_uniform_, kaiming_normal_))
orthogonal, sparse = map(_deprecated, (orthogonal_, sparse_))
# What programs call, though PyTorch means it to be private.
_calculate_fan_in_and_fan_out = fans
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
