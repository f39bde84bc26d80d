"""Normalisation over features or over a batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend.dtype import finfo, float32, promote_types
from ...core.tensor import Tensor
from ..dispatch.declare import composite, op
from ..dispatch.vocabulary import VOCABULARY as F


def _require_shape(name: str, input: Tensor, normalized_shape: Any) -> int:
    """The number of dimensions of `normalized_shape`, with which `input` must end."""
    if not isinstance(normalized_shape, (tuple, list)):
        raise TypeError(
            f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not "
            f"{type(normalized_shape).__name__}"
        )
    if not (ndim := len(normalized_shape)):
        raise RuntimeError(f"{name}(): Expected normalized_shape to be at least 1-dimensional, got none")
    if input._array.shape[-ndim:] != tuple(normalized_shape):
        given = list(normalized_shape)
        said = f"Given normalized_shape={given}, expected input with shape [*, {str(given)[1:]}"
        raise RuntimeError(f"{name}(): {said}, but got input of size {list(input.shape)}")
    return ndim


def require_parameters(name: str, input: Tensor, shape: tuple[int, ...], *given: Tensor | None) -> None:
    """`RuntimeError` for a parameter not of `shape`, which kernels count on, or neither of input's dtype nor float32 beside 16 bits."""
    dtype = input._array.dtype
    for place, tensor in enumerate(given):
        if not isinstance(tensor, Tensor):
            continue
        array, parameter = tensor._array, ("weight", "bias", "running_mean", "running_var")[place]
        if array.shape != shape:
            got = f"but got {parameter} of shape {list(tensor.shape)}"
            if name in ("layer_norm", "rms_norm"):
                said = f"Expected {parameter} to be of same shape as normalized_shape, {got} and normalized_shape = {list(shape)}"
            elif name == "group_norm":
                said = (
                    f"Expected {parameter} to be a vector of size equal to the number of channels in input, {got} and "
                    f"input of shape {list(input.shape)}"
                )
            else:
                said = f"{parameter} should contain {shape[0]} elements not {tensor.numel()}, {got}"
            raise RuntimeError(f"{name}(): {said}")
        own = array.dtype
        if own is dtype or own == dtype:
            continue
        wide = dtype.itemsize != 2
        # Beside 16 bits statistics may stay as they are, where mixed precision casts the rest.
        if (wide or own != np.float32) if place < 2 else (wide and dtype.kind == "f"):
            raise RuntimeError(
                f"{name}(): mixed dtype: expect {parameter} to have input's dtype {input.dtype.name}, but it has "
                f"{tensor.dtype.name}; convert one with Tensor.to(dtype)"
            )


def _layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The last dimensions, which must be `normalized_shape`, brought to mean 0 and variance 1, scaled and shifted."""
    ndim = _require_shape("layer_norm", input, normalized_shape)
    require_parameters("layer_norm", input, tuple(normalized_shape), weight, bias)
    return F.layer_norm(input, weight, bias, ndim, eps)


def _wide(F: Any, *values: Any) -> list[Any]:
    """Arrays or Tensors (or None) with float32 in place of 16-bit types, in which nothing is summed."""
    return [v if v is None or v.dtype.itemsize != 2 else F.cast(v, float32) for v in values]


def _np_layer_norm(x: Any, w: Any = None, b: Any = None, ndim: int = 1, eps: float = 1e-5) -> Any:
    axes = tuple(range(-ndim, 0))
    out = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    return out * (1 if w is None else w) + (0 if b is None else b)


@op(
    public=_layer_norm,
    joint=lambda F, g, needs, input, weight, bias, ndim, eps, mean, rstd: F.layer_norm_backward(
        g, input, weight, bias, ndim, eps, mean, rstd
    ),
    extras=("mean", "rstd"),
    samples=lambda rng: [
        ((rng.standard_normal((4, 5)), rng.standard_normal(5), rng.standard_normal(5)), {}),
        ((rng.standard_normal((2, 3, 5)), rng.standard_normal((3, 5)), rng.standard_normal((3, 5)), 2), {}),
        ((rng.standard_normal((4, 5)),), {}),
    ],
    reference=_np_layer_norm,
    method=False,
    grad_name="NativeLayerNormBackward0",
)
def layer_norm(
    F: Any,
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    ndim: int = 1,
    eps: float = 1e-5,
) -> Tensor:
    """The last `ndim` dimensions brought to mean 0 and variance 1, then scaled and shifted."""
    dims = tuple(range(len(input.shape) - ndim, len(input.shape)))
    centred = input - F.mean(input, dims, True)
    rstd = F.rsqrt(F.mean(centred * centred, dims, True) + eps)
    out = centred * rstd
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out, None, None  # type: ignore[return-value]


@composite
def layer_norm_backward(
    F: Any, g: Any, input: Any, weight: Any, bias: Any, ndim: int, eps: float, mean: Any, rstd: Any
) -> tuple[Any, Any, Any]:
    """The gradients of `layer_norm`; works out the statistics again, so that it has a gradient itself."""
    g, input, weight = _wide(F, g, input, weight)
    n = len(input.shape)
    dims, lead = tuple(range(n - ndim, n)), tuple(range(n - ndim))
    centred = input - F.mean(input, dims, True)
    rstd = F.rsqrt(F.mean(centred * centred, dims, True) + eps)
    normal = centred * rstd
    scaled = g if weight is None else g * weight
    grad_input = rstd * (scaled - F.mean(scaled, dims, True) - normal * F.mean(scaled * normal, dims, True))
    grad_weight = None if weight is None else (F.sum(g * normal, lead) if lead else g * normal)
    grad_bias = None if bias is None else (F.sum(g, lead) if lead else g)
    return grad_input, grad_weight, grad_bias


def _channels(values: Any, n: int, F: Any) -> Any:
    """A (C,) array as (1, C, 1, …) of `n` dimensions."""
    return F.reshape(values, (1, -1) + (1,) * (n - 2))


def _np_batch_norm(x: Any, w: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
    axes = (0, *range(2, x.ndim))
    shape = (1, -1) + (1,) * (x.ndim - 2)
    mean, var = x.mean(axes), x.var(axes)
    out = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps)
    out = out * (1 if w is None else w.reshape(shape)) + (0 if b is None else b.reshape(shape))
    return out, mean, 1 / np.sqrt(var + eps), var


@op(
    joint=lambda F, g, needs, input, weight, bias, eps, mean, rstd: F.batch_norm_backward(
        g, input, weight, bias, eps, mean, rstd
    ),
    outputs=4,
    extras=("mean", "rstd", "var"),
    samples=lambda rng: [
        ((rng.standard_normal((4, 3, 2, 2)), rng.standard_normal(3), rng.standard_normal(3)), {}),
        ((rng.standard_normal((6, 3)),), {}),
    ],
    reference=_np_batch_norm,
    method=False,
    grad_name="NativeBatchNormBackward0",
)
def batch_norm_train(
    F: Any, input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each channel (dimension 1) brought to mean 0 and variance 1 over the batch.

    Returns the result, and without gradients the channels' mean, 1/deviation and biased variance.
    """
    return F.batch_norm(input, weight, bias, eps)


@composite
def batch_norm(F: Any, input: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    """The kernel of `batch_norm_train`: (result, mean, 1/deviation, biased variance)."""
    n = len(input.shape)
    dims = (0, *range(2, n))
    mean = F.mean(input, dims)
    centred = input - _channels(mean, n, F)
    var = F.mean(centred * centred, dims)
    rstd = F.rsqrt(var + eps)
    out = centred * _channels(rstd, n, F)
    if weight is not None:
        out = out * _channels(weight, n, F)
    if bias is not None:
        out = out + _channels(bias, n, F)
    return out, mean, rstd, var


@composite
def batch_norm_backward(
    F: Any, g: Any, input: Any, weight: Any, bias: Any, eps: float, mean: Any, rstd: Any
) -> tuple[Any, Any, Any]:
    """The gradients of `batch_norm_train`; works out the statistics again, so that it has a gradient itself."""
    g, input, weight = _wide(F, g, input, weight)
    n = len(input.shape)
    dims = (0, *range(2, n))
    centred = input - F.mean(input, dims, True)
    spread = F.rsqrt(F.mean(centred * centred, dims, True) + eps)
    normal = centred * spread
    scaled = g if weight is None else g * _channels(weight, n, F)
    grad_input = spread * (scaled - F.mean(scaled, dims, True) - normal * F.mean(scaled * normal, dims, True))
    grad_weight = None if weight is None else F.sum(g * normal, dims)
    grad_bias = None if bias is None else F.sum(g, dims)
    return grad_input, grad_weight, grad_bias


def _channel_sum(F: Any, values: Any) -> Any:
    return F.sum(values, (0, *range(2, len(values.shape))))


@op(
    grads={
        "input": lambda F, g, weight: F.channel_affine(g, weight, F.new_zeros(weight, weight.shape)),
        "weight": lambda F, g, input: _channel_sum(F, g * input),
        "bias": lambda F, g: _channel_sum(F, g),
    },
    samples=lambda rng: [
        ((rng.standard_normal((4, 3, 5, 2)), rng.standard_normal(3), rng.standard_normal(3)), {}),
        ((rng.standard_normal((6, 3)), rng.standard_normal(3), rng.standard_normal(3)), {}),
    ],
    reference=lambda x, w, b: x * w.reshape(-1, *[1] * (x.ndim - 2)) + b.reshape(-1, *[1] * (x.ndim - 2)),
    method=False,
)
def channel_affine(F: Any, input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """input * weight + bias, a number of each for each channel (dimension 1)."""
    n = len(input.shape)
    return input * _channels(weight, n, F) + _channels(bias, n, F)


def _np_rms_norm(x: Any, w: Any = None, ndim: int = 1, eps: float = 1e-5) -> Any:
    axes = tuple(range(-ndim, 0))
    out = x / np.sqrt((x * x).mean(axes, keepdims=True) + eps)
    return out if w is None else out * w


def _rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """The last dimensions, which must be `normalized_shape`, divided by their root mean square, and scaled.

    eps: added to the mean square; the epsilon of the type that it is taken in, float32 at least, by default. Source: https://arxiv.org/abs/1910.07467
    """
    ndim = _require_shape("rms_norm", input, normalized_shape)
    if isinstance(weight, Tensor) and weight.dtype is not input.dtype and weight.is_floating_point():
        weight = weight.to(float32 if input.dtype.itemsize == 2 else input.dtype)
    require_parameters("rms_norm", input, tuple(normalized_shape), weight)
    eps = finfo(promote_types(input.dtype, float32)).eps if eps is None else eps
    return F.rms_norm(input, weight, ndim, eps)


@op(
    public=_rms_norm,
    joint=lambda F, g, needs, input, weight, ndim, eps, rstd: F.rms_norm_backward(
        g, input, weight, ndim, eps, rstd
    ),
    extras=("rstd",),
    samples=lambda rng: [
        ((rng.standard_normal((4, 5)), rng.standard_normal(5)), {}),
        ((rng.standard_normal((2, 3, 5)), rng.standard_normal((3, 5)), 2, 0.1), {}),
        ((rng.standard_normal((4, 5)),), {}),
    ],
    reference=_np_rms_norm,
    method=False,
    grad_name="FusedRmsNormBackward0",
)
def rms_norm(F: Any, input: Tensor, weight: Tensor | None = None, ndim: int = 1, eps: float = 1e-5) -> Tensor:
    """The last `ndim` dimensions divided by the root of their mean square, then scaled."""
    dims = tuple(range(len(input.shape) - ndim, len(input.shape)))
    out = input * F.rsqrt(F.mean(input * input, dims, True) + eps)
    return (out if weight is None else out * weight), None  # type: ignore[return-value]


@composite
def rms_norm_backward(
    F: Any, g: Any, input: Any, weight: Any, ndim: int, eps: float, rstd: Any
) -> tuple[Any, Any]:
    """The gradients of `rms_norm`; works out the mean square again, so that it has a gradient itself."""
    g, input, weight = _wide(F, g, input, weight)
    n = len(input.shape)
    dims, lead = tuple(range(n - ndim, n)), tuple(range(n - ndim))
    inverse = F.rsqrt(F.mean(input * input, dims, True) + eps)
    normal = input * inverse
    scaled = g if weight is None else g * weight
    grad_input = inverse * (scaled - normal * F.mean(scaled * normal, dims, True))
    grad_weight = None if weight is None else (F.sum(g * normal, lead) if lead else g * normal)
    return grad_input, grad_weight


def _np_group_norm(x: Any, w: Any = None, b: Any = None, groups: int = 1, eps: float = 1e-5) -> Any:
    rows = x.reshape(x.shape[0], groups, -1)
    out = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + eps)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    out = out.reshape(x.shape) * (1 if w is None else w.reshape(shape))
    return out + (0 if b is None else b.reshape(shape))


def _grouped(F: Any, x: Any, groups: int, eps: float) -> tuple[Any, Any]:
    """(N, groups, elements of a group): normalised, and (N, groups, 1): 1 / deviation."""
    rows = F.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    centred = rows - F.mean(rows, 2, True)
    rstd = F.rsqrt(F.mean(centred * centred, 2, True) + eps)
    return centred * rstd, rstd


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Groups of channels of (N, C, *) brought to mean 0 and variance 1, each channel scaled and shifted.

    Source: https://arxiv.org/abs/1803.08494
    """
    if input.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    channels = input.shape[1]
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if input.numel() and input.shape[0] * (channels // num_groups) * math.prod(input.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    if channels % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={num_groups}"
        )
    require_parameters("group_norm", input, (channels,), weight, bias)
    return F.group_norm(input, weight, bias, num_groups, eps)


@op(
    public=_group_norm,
    joint=lambda F, g, needs, input, weight, groups, eps, mean, rstd: F.group_norm_backward(
        g, input, weight, needs[2], groups, eps, mean, rstd
    ),
    extras=("mean", "rstd"),
    samples=lambda rng: [
        ((rng.standard_normal((2, 4, 3)), rng.standard_normal(4), rng.standard_normal(4), 2), {}),
        ((rng.standard_normal((3, 4)), None, None, 2, 0.1), {}),
    ],
    reference=_np_group_norm,
    method=False,
    grad_name="NativeGroupNormBackward0",
)
def group_norm(
    F: Any,
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    groups: int = 1,
    eps: float = 1e-5,
) -> Tensor:
    """Each of `groups` of channels (dimension 1) brought to mean 0 and variance 1, then each channel scaled and shifted."""
    n = len(input.shape)
    out = F.reshape(_grouped(F, input, groups, eps)[0], tuple(input.shape))
    if weight is not None:
        out = out * _channels(weight, n, F)
    if bias is not None:
        out = out + _channels(bias, n, F)
    return out, None, None  # type: ignore[return-value]


@composite
def group_norm_backward(
    F: Any, g: Any, input: Any, weight: Any, with_bias: Any, groups: int, eps: float, mean: Any, rstd: Any
) -> tuple[Any, Any, Any]:
    """The gradients of `group_norm`; works out the statistics again, so that it has a gradient itself."""
    g, input, weight = _wide(F, g, input, weight)
    n = len(input.shape)
    dims = (0, *range(2, n))
    normal, spread = _grouped(F, input, groups, eps)
    scaled = F.reshape(g if weight is None else g * _channels(weight, n, F), tuple(normal.shape))
    grad = spread * (scaled - F.mean(scaled, 2, True) - normal * F.mean(scaled * normal, 2, True))
    grad_weight = None if weight is None else F.sum(g * F.reshape(normal, tuple(input.shape)), dims)
    grad_bias = F.sum(g, dims) if with_bias else None
    return F.reshape(grad, tuple(input.shape)), grad_weight, grad_bias
