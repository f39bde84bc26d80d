"""Normalisation as functions that are made of ops: over a batch, instances, or neighbouring channels."""

from __future__ import annotations

import math

from ... import Tensor, clone, narrow, no_grad, repeat, reshape, rsqrt
from ...backend import dtype as dtypes
from ...ops.dispatch.dtype_lists import refuse_dtypes
from ...ops.indexing.setitem import copy_
from ...ops.layers.normalization import batch_norm_train, channel_affine, require_parameters
from ...ops.shape.shape import constant_pad


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
    `momentum`; otherwise by the running ones.
    """
    if input.ndim < 2:
        if input.numel():
            raise RuntimeError(
                f"batch_norm(): expected channels in dimension 1, got input size {list(input.shape)}"
            )
        return clone(input)
    if training and eps <= 0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    if eps < 0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    require_parameters("batch_norm", input, input._array.shape[1:2], weight, bias, running_mean, running_var)
    if training:
        count = math.prod((input.shape[0], *input.shape[2:]))
        if not count:  # an empty batch has no statistics, and leaves the running ones as they are
            return _scaled(input, weight, bias)
        if count == 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {input.shape}"
            )
        out, mean, _, var = batch_norm_train(input, weight, bias, eps)
        if running_mean is not None and running_var is not None:
            with no_grad():
                _move(running_mean, mean, momentum)
                _move(running_var, var * (count / (count - 1)), momentum)
        return out
    refuse_dtypes("batch_norm", "bic", (input,))
    if running_mean is None or running_var is None:
        missing = "running_mean" if running_mean is None else "running_var"
        raise RuntimeError(f"batch_norm(): {missing} must be defined in evaluation mode (training=False)")
    # One scale and one shift per channel, so that the images are read only once; not rounded to 16 bits.
    if input.dtype.itemsize == 2:
        running_mean, running_var = running_mean.float(), running_var.float()
    scale = rsqrt(running_var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -running_mean * scale
    if bias is not None:
        shift = shift + bias
    return _scaled(input, scale, shift)


def _scaled(input: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """input * scale + shift, a number of each for each channel (dimension 1); in the dtype of `input`."""
    if scale is not None and shift is not None:
        return channel_affine(input, scale, shift).to(input.dtype)
    shape = (1, -1) + (1,) * (input.ndim - 2)
    out = clone(input) if scale is None else input * reshape(scale, shape)
    return (out if shift is None else out + reshape(shift, shape)).to(input.dtype)


def _move(running: Tensor, batch: Tensor, momentum: float) -> None:
    copy_(running, running * (1 - momentum) + batch.to(running.dtype) * momentum)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each instance of (N, C, *) brought to mean 0 and variance 1, scaled and shifted.

    use_input_stats: False takes the running statistics instead; when they are given and it
    is True they move towards the mean of the instances' ones. Source: https://arxiv.org/abs/1607.08022
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "Expected running_mean and running_var to be defined when use_input_stats=False"
            )
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    n, channels = input.shape[:2]
    require_parameters("instance_norm", input, (channels,), weight, bias, running_mean, running_var)
    places = math.prod(input.shape[2:])
    if places <= 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    one_batch = reshape(input, (1, n * channels, *input.shape[2:]))
    weight, bias = (p if p is None else repeat(p, n) for p in (weight, bias))
    out, mean, _, var = batch_norm_train(one_batch, weight, bias, eps)
    with no_grad():
        if n and running_mean is not None:
            _move(running_mean, reshape(mean, (n, channels)).mean(0), momentum)
        if n and running_var is not None:
            unbiased = var * (places / (places - 1))
            _move(running_var, reshape(unbiased, (n, channels)).mean(0), momentum)
    return reshape(out, tuple(input.shape))


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """input / (k + alpha * the mean square of `size` neighbouring channels)**beta, over (N, C, *).

    Channels beyond the edge count as 0. Source: Krizhevsky et al., 2012, section 3.3.
    """
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if input.dtype.category == 1 and input.dtype is not dtypes.int64:
        raise NotImplementedError(f"local_response_norm(): not implemented for '{input.dtype.scalar_type}'")
    if not input.numel():
        return input
    widths = [(0, 0), (size // 2, (size - 1) // 2)] + [(0, 0)] * (input.ndim - 2)
    squares = constant_pad(input * input, widths, 0.0)
    channels = input.shape[1]
    total = narrow(squares, 1, 0, channels)
    for start in range(1, size):
        total = total + narrow(squares, 1, start, channels)
    return input / (total * (alpha / size) + k) ** beta
