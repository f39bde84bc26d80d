"""Patches of images as columns, and back; pixel and channel shuffles."""

from __future__ import annotations

import math
from typing import Any

from ... import Tensor, channels_last, clone, permute, reshape, squeeze, transpose, unsqueeze
from ...backend.layout import order_of_images
from ...backend.windows import Ints, convolved_size, per_dimension
from ...ops.layers.fold import col2im, im2col


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The patches of images (N, C, H, W), or of one (C, H, W), as columns: (N, C * kh * kw, patches)."""
    if input.ndim not in (3, 4) or 0 in input.shape[-3:]:
        raise RuntimeError(
            f"Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
            f"input, but got: {list(input.shape)}"
        )
    kernel, dilation, padding, stride = _options(kernel_size, dilation, padding, stride)
    size = convolved_size(input.shape[-2:], kernel, stride, padding, dilation)
    if min(size) <= 0:
        raise RuntimeError(
            f"Given input with spatial size {list(input.shape[-2:])}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, calculated shape of the array of sliding blocks as {size}, but its components must "
            "be at least one."
        )
    if input.ndim == 3:
        return squeeze(im2col(unsqueeze(input, 0), kernel, dilation, padding, stride), 0)
    return im2col(input, kernel, dilation, padding, stride)


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Columns (N, C * kh * kw, patches), or without N, added up to images (N, C, *output_size) where they overlap."""
    kernel, dilation, padding, stride = _options(kernel_size, dilation, padding, stride)
    size = per_dimension(output_size, 2, "output_size")
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for "
            f"input, but got: {list(input.shape)}"
        )
    patches = convolved_size(size, kernel, stride, padding, dilation)
    if input.shape[-2] % math.prod(kernel) or input.shape[-1] != math.prod(patches) or min(patches) <= 0:
        raise RuntimeError(
            f"Given output_size={size}, kernel_size={kernel}, dilation={dilation}, padding={padding}, "
            f"stride={stride}, expected size of input's dimensions -2 and -1 to be a multiple of {math.prod(kernel)} "
            f"and the number of sliding blocks {patches[0]} * {patches[1]}, but got {list(input.shape)}"
        )
    if input.ndim == 2:
        return squeeze(col2im(unsqueeze(input, 0), size, kernel, dilation, padding, stride), 0)
    return col2im(input, size, kernel, dilation, padding, stride)


def _options(*values: Any) -> tuple[Ints, ...]:
    names = ("kernel_size", "dilation", "padding", "stride")
    kernel, dilation, padding, stride = (
        per_dimension(v, 2, name) for v, name in zip(values, names, strict=True)
    )
    for name, value in zip(names, (kernel, dilation, padding, stride), strict=True):
        least, words = (0, "non-negative") if name == "padding" else (1, "greater than zero")
        if min(value) < least:
            raise RuntimeError(f"{name.replace('_', ' ')} should be {words}, but got {value}")
    return kernel, dilation, padding, stride


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C * r^2, H, W) as (*, C, H * r, W * r): groups of r^2 channels become r x r pixels.

    Source: https://arxiv.org/abs/1609.05158
    """
    r = upscale_factor
    if input.ndim < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(lead)
    if r == 1:
        return clone(input)
    split = reshape(input, (*lead, channels // (r * r), r, r, height, width))
    moved = permute(split, *range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return _lying_as(input, reshape(moved, (*lead, channels // (r * r), height * r, width * r)))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H * r, W * r) as (*, C * r^2, H, W): the inverse of `pixel_shuffle`."""
    r = downscale_factor
    if input.ndim < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.ndim} "
            "dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, channels, height, width = input.shape
    if height % r or width % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but ({height}, {width}) "
            f"is not divisible by {r}"
        )
    n = len(lead)
    if r == 1:
        return clone(input)
    split = reshape(input, (*lead, channels, height // r, r, width // r, r))
    moved = permute(split, *range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return _lying_as(input, reshape(moved, (*lead, channels * r * r, height // r, width // r)))


def _lying_as(input: Tensor, out: Tensor) -> Tensor:
    """Images `out` in the order of memory that images `input` have."""
    if input.ndim == 4 and order_of_images(input._array) is not None:
        return out.contiguous(memory_format=channels_last)
    return out


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels (N, C, *) in an order that takes one of each of the `groups` in turn.

    Source: https://arxiv.org/abs/1707.01083
    """
    if input.ndim < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}"
        )
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    n, channels, *rest = input.shape
    if channels % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
        )
    split = transpose(reshape(input, (n, groups, channels // groups, *rest)), 1, 2)
    return _lying_as(input, reshape(split, tuple(input.shape)))
