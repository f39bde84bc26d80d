"""Batch normalisation in eval mode, folded into the layer before it."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from ... import Tensor, reshape, rsqrt, zeros_like
from ..modules.module import Module
from ..parameter import Parameter

M = TypeVar("M", bound=Module)


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A convolution that computes `bn(conv(x))`; both must be in eval mode."""
    return _fused(conv, bn, transpose)


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A linear layer that computes `bn(linear(x))`; both must be in eval mode."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    return _fused(linear, bn, False)


def _fused(layer: Any, bn: Any, transpose: bool) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    statistics = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    fused.weight, fused.bias = fuse_conv_bn_weights(layer.weight, layer.bias, *statistics, transpose)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a layer that does what one with `conv_w`, `conv_b` and then a batch norm do.

    bn_rm, bn_rv: the running mean and variance. transpose: the outputs are dimension 1 of the weight.
    """
    scale = rsqrt(bn_rv + bn_eps)
    if bn_w is not None:
        scale = scale * bn_w
    shift = -bn_rm if conv_b is None else conv_b - bn_rm
    shift = shift * scale + (zeros_like(scale) if bn_b is None else bn_b)
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    weight = conv_w * reshape(scale, tuple(shape))
    trained = conv_w.requires_grad if conv_b is None else conv_b.requires_grad
    return (
        Parameter(weight.detach().to(conv_w.dtype), conv_w.requires_grad),
        Parameter(shift.detach().to(conv_w.dtype if conv_b is None else conv_b.dtype), trained),
    )


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """`fuse_conv_bn_weights` of a linear layer."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
