"""Convolution, pooling, normalisation, dropout, embedding and attention as functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..._tensor import Tensor
from ...autograd.grad_mode import no_grad
from ...ops import attention, conv, index, norm, pool
from ...ops import dropout as dropping
from ...ops.elementwise import rsqrt
from ...ops.index import getitem
from ...ops.inplace import copy_
from ...ops.reduce import mean as mean_over
from ...ops.shape import reshape, stack


def _batched(function: Callable[[Tensor], Any], input: Tensor) -> Any:
    """Run what takes (N, C, H, W) on one image (C, H, W) too."""
    if input.ndim != 3:
        return function(input)
    out = function(input.unsqueeze(0))
    return tuple(o.squeeze(0) for o in out) if isinstance(out, tuple) else out.squeeze(0)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`input` (N, C, H, W) or (C, H, W) cross-correlated with `weight` (O, C/groups, kh, kw), plus `bias` (O,)."""
    if input.ndim == 4:
        return conv.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return _batched(lambda x: conv.conv2d(x, weight, bias, stride, padding, dilation, groups), input)


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of (N, C, H, W) or (C, H, W); with `return_indices`, (values, indices)."""
    out = _batched(lambda x: pool.max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode), input)
    return out if return_indices else out[0]


def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of (N, C, H, W) or (C, H, W); `divisor_override` replaces the number of elements."""
    if divisor_override is not None:
        if divisor_override == 0:
            raise RuntimeError("avg_pool2d(): divisor must be not zero")
        if ceil_mode:
            raise NotImplementedError("avg_pool2d(): divisor_override with ceil_mode=True is not supported")
        kh, kw = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        means = _batched(lambda x: pool.avg_pool2d(x, kernel_size, stride, padding, False, True), input)
        return means * (kh * kw / divisor_override)
    return _batched(
        lambda x: pool.avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad), input
    )


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over windows that divide (..., H, W) as evenly as they can into `output_size`; None keeps a length."""
    if input.ndim not in (3, 4):
        raise RuntimeError(f"adaptive_avg_pool2d(): expected 3D or 4D input, got {list(input.shape)}")
    sizes = (output_size, output_size) if output_size is None or isinstance(output_size, int) else output_size
    height, width = input.shape[-2:]
    rows, columns = (n if size is None else size for n, size in zip((height, width), sizes, strict=True))
    if (rows, columns) == (1, 1):
        return mean_over(input, (-2, -1), True)
    if rows and columns and height % rows == 0 and width % columns == 0:
        lead = tuple(input.shape[:-2])
        blocks = reshape(input, (*lead, rows, height // rows, columns, width // columns))
        return mean_over(blocks, (len(lead) + 1, len(lead) + 3))
    for dim, size in ((-2, rows), (-1, columns)):
        input = _adaptive_mean(input, dim, size)
    return input


def _adaptive_mean(input: Tensor, dim: int, size: int) -> Tensor:
    """The mean of `size` windows, which overlap by one where `size` does not divide the length."""
    n = input.shape[dim]
    parts = []
    for i in range(size):
        window = slice(i * n // size, -(-(i + 1) * n // size))
        where = (Ellipsis, window, slice(None)) if dim == -2 else (Ellipsis, window)
        parts.append(mean_over(getitem(input, where), dim))
    return stack(parts, dim)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The last dimensions, which must be `normalized_shape`, brought to mean 0 and variance 1, scaled and shifted."""
    ndim = len(normalized_shape)
    if input._array.shape[-ndim:] != tuple(normalized_shape):
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape "
            f"[*, {', '.join(map(str, normalized_shape))}], but got input of size {list(input.shape)}"
        )
    return norm.layer_norm(input, weight, bias, ndim, eps)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Channels (dimension 1) brought to mean 0 and variance 1, scaled and shifted.

    In training by the batch's statistics, and the running ones move towards them by
    `momentum`, in place; otherwise by the running ones.
    """
    if training:
        count = input.numel() // input.shape[1]
        if count <= 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {input.shape}"
            )
        out, mean, _, var = norm.batch_norm_train(input, weight, bias, eps)
        if running_mean is not None and running_var is not None:
            with no_grad():
                _move(running_mean, mean, momentum)
                _move(running_var, var * (count / (count - 1)), momentum)
        return out
    if running_mean is None or running_var is None:
        raise ValueError(
            "batch_norm(): expected running_mean and running_var to be defined when training=False"
        )
    # One scale and one shift per channel, so that the images are read only once each.
    scale = rsqrt(running_var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -running_mean * scale
    if bias is not None:
        shift = shift + bias
    shape = (1, -1) + (1,) * (input.ndim - 2)
    return (input * reshape(scale, shape) + reshape(shift, shape)).to(input.dtype)


def _move(running: Tensor, batch: Tensor, momentum: float) -> None:
    copy_(running, running * (1 - momentum) + batch.to(running.dtype) * momentum)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, elements zeroed with probability `p` and the others scaled by 1 / (1 - p)."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    out = dropping.dropout(input, p)
    return copy_(input, out) if inplace else out


def refuse_table_options(name: str, max_norm: Any, scale_grad_by_freq: bool, sparse: bool) -> None:
    """`NotImplementedError` for the options of embeddings that PyTorch has and ddpgrad does not."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotImplementedError(
            f"{name}: max_norm, scale_grad_by_freq and sparse are not supported, got max_norm={max_norm}, "
            f"scale_grad_by_freq={scale_grad_by_freq}, sparse={sparse}"
        )


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows `input` (*) of the table `weight` (rows, width); no gradient goes to row `padding_idx`."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        refuse_table_options("embedding()", max_norm, scale_grad_by_freq, sparse)
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise ValueError(
                f"padding_idx must be within num_embeddings={weight.shape[0]}, got {padding_idx}"
            )
        padding_idx %= weight.shape[0]
    return index.embedding(weight, input, padding_idx)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key^T * scale) @ value over (..., T, D), (..., S, D), (..., S, E).

    attn_mask: bool (True takes part) or added to the scores. is_causal: position t sees
    positions up to t. dropout_p: probability of dropping an attention weight; applied
    whenever it is not 0, so pass 0 in evaluation. scale: 1/sqrt(D) by default.
    """
    if enable_gqa:
        raise NotImplementedError("scaled_dot_product_attention(): enable_gqa=True is not supported")
    if dropout_p == 0.0:
        return attention.scaled_dot_product_attention(query, key, value, attn_mask, is_causal, scale)
    return _attention_with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale)


def _attention_with_dropout(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    if is_causal and attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention(): attn_mask and is_causal must not both be set")
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = scores.new_ones(tuple(scores.shape[-2:]), dtype=bool).tril()
    if attn_mask is not None:
        hidden = attn_mask.dtype.category == 0
        scores = scores.masked_fill(~attn_mask, -math.inf) if hidden else scores + attn_mask
    return dropout(scores.softmax(-1), dropout_p) @ value
