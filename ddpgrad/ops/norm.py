"""Normalisation over features or over a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from .declare import composite, op


def _layer_norm_rule(
    F: Any,
    g: Any,
    needs: Any,
    input: Any,
    weight: Any,
    bias: Any,
    ndim: int,
    eps: float,
    mean: Any,
    rstd: Any,
) -> Any:
    return F.layer_norm_backward(g, input, weight, bias, ndim, eps, mean, rstd)


def _np_layer_norm(x: Any, w: Any = None, b: Any = None, ndim: int = 1, eps: float = 1e-5) -> Any:
    axes = tuple(range(-ndim, 0))
    out = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    return out * (1 if w is None else w) + (0 if b is None else b)


@op(
    joint=_layer_norm_rule,
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


def _batch_norm_rule(
    F: Any, g: Any, needs: Any, input: Any, weight: Any, bias: Any, eps: float, mean: Any, rstd: Any
) -> Any:
    return F.batch_norm_backward(g, input, weight, bias, eps, mean, rstd)


def _np_batch_norm(x: Any, w: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
    axes = (0, *range(2, x.ndim))
    shape = (1, -1) + (1,) * (x.ndim - 2)
    mean, var = x.mean(axes), x.var(axes)
    out = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps)
    out = out * (1 if w is None else w.reshape(shape)) + (0 if b is None else b.reshape(shape))
    return out, mean, 1 / np.sqrt(var + eps), var


@op(
    joint=_batch_norm_rule,
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
