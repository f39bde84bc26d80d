"""Batch normalisation in eval mode, folded into the layer before it."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from ...core.tensor import Tensor
from ...ops.creation.factories import zeros_like
from ...ops.elementwise.unary import rsqrt
from ...ops.shape.shape import reshape
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
    weight, bias = _folded(layer.weight, layer.bias, bn, transpose)
    fused.weight = Parameter(weight.detach(), layer.weight.requires_grad)
    fused.bias = Parameter(
        bias.detach(), layer.weight.requires_grad if layer.bias is None else layer.bias.requires_grad
    )
    return fused


def _folded(weight: Tensor, bias: Tensor | None, bn: Any, transpose: bool) -> tuple[Tensor, Tensor]:
    scale = rsqrt(bn.running_var + bn.eps)
    if bn.weight is not None:
        scale = scale * bn.weight
    shift = -bn.running_mean if bias is None else bias - bn.running_mean
    shift = shift * scale + (zeros_like(scale) if bn.bias is None else bn.bias)
    shape = [1] * weight.ndim
    shape[1 if transpose else 0] = -1
    return weight * reshape(scale, tuple(shape)), shift
