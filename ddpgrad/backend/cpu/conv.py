"""Convolution over one to three dimensions and its two gradients for the CPU, float32 and float64.

A signal is an image of height 1. A volume goes frame by frame: each slice of the kernel along the
depth is a convolution of images, of those frames that it meets. Where the kernel is as large as the
stride, `tiles.py` does all of them. Other types, more dimensions and
empty arrays are `NotImplemented`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from . import conv2d, depthwise, tiles
from .vectormath import compiled_for

Array = np.ndarray
Ints = tuple[int, ...]
Pair = tuple[int, int]
# stride, padding and dilation along the depth of volumes
Depth = tuple[int, int, int]


class _Options(NamedTuple):
    """The options of images: of the last two dimensions. A signal is an image of height 1."""

    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int


def _of_images(stride: Ints, padding: Ints, dilation: Ints, groups: int) -> _Options:
    if len(stride) == 1:
        return _Options((1, stride[0]), (0, padding[0]), (1, dilation[0]), groups)
    return _Options(
        (stride[-2], stride[-1]), (padding[-2], padding[-1]), (dilation[-2], dilation[-1]), groups
    )


def convolution(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """Cross-correlation of input (N, C, *size) with weight (O, C/groups, *kernel) plus bias (O,)."""
    if not _handled(input, weight) or (bias is not None and bias.dtype != input.dtype):
        return NotImplemented
    if tiles.fits(weight.shape[2:], stride, padding, dilation, groups):
        return tiles.convolve(input, weight, bias)
    options = _of_images(stride, padding, dilation, groups)
    if input.ndim == 4:
        return _images(input, weight, bias, options)
    if input.ndim == 3:
        return _images(input[:, :, None], weight[:, :, None], bias, options)[:, :, 0]
    return _volumes(input, weight, bias, (stride[0], padding[0], dilation[0]), options)


def convolution_input(
    g: Array, weight: Array, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """The gradient of `convolution` for its input, from g (N, O, *)."""
    if not _handled(g, weight):
        return NotImplemented
    if tiles.fits(weight.shape[2:], stride, padding, dilation, groups):
        return tiles.convolve_input(g, weight, input_shape)
    options = _of_images(stride, padding, dilation, groups)
    if g.ndim == 4:
        return _images_input(g, weight, input_shape, options)
    if g.ndim == 3:
        shape = (*input_shape[:2], 1, input_shape[2])
        return _images_input(g[:, :, None], weight[:, :, None], shape, options)[:, :, 0]
    return _volumes_input(g, weight, input_shape, (stride[0], padding[0], dilation[0]), options)


def convolution_weight(
    g: Array, input: Array, weight_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """The gradient of `convolution` for its weight, from g (N, O, *)."""
    if not _handled(g, input):
        return NotImplemented
    if tiles.fits(weight_shape[2:], stride, padding, dilation, groups):
        return tiles.convolve_weight(g, input, weight_shape)
    options = _of_images(stride, padding, dilation, groups)
    if g.ndim == 4:
        return _images_weight(g, input, weight_shape, options)
    if g.ndim == 3:
        shape = (*weight_shape[:2], 1, weight_shape[2])
        return _images_weight(g[:, :, None], input[:, :, None], shape, options)[:, :, 0]
    return _volumes_weight(g, input, weight_shape, (stride[0], padding[0], dilation[0]), options)


def _handled(a: Array, b: Array) -> bool:
    return compiled_for(a, b) and a.size > 0 and b.size > 0 and 3 <= a.ndim <= 5


def _size(shape: Ints, weight_shape: Ints, options: _Options) -> Pair:
    """(height, width) of the result for images, or frames, of `shape`."""
    stride, padding, dilation, _ = options
    down, across = (
        (shape[i] + 2 * padding[i] - dilation[i] * (weight_shape[i] - 1) - 1) // stride[i] + 1
        for i in (-2, -1)
    )
    return down, across


def _images(input: Array, weight: Array, bias: Array | None, options: _Options) -> Array:
    if depthwise.pays(weight.shape, options.groups):
        size = _size(input.shape, weight.shape, options)
        return depthwise.convolve(input, weight, bias, *options[:3], size)
    return conv2d.convolve(input, weight, bias, *options)


def _images_input(g: Array, weight: Array, input_shape: Ints, options: _Options) -> Array:
    if depthwise.pays(weight.shape, options.groups):
        return depthwise.convolve_input(g, weight, input_shape, *options[:3])
    return conv2d.convolve_input(g, weight, input_shape, *options)


def _images_weight(g: Array, input: Array, weight_shape: Ints, options: _Options) -> Array:
    if depthwise.pays(weight_shape, options.groups):
        return depthwise.convolve_weight(g, input, weight_shape, *options[:3])
    return conv2d.convolve_weight(g, input, weight_shape, *options)


def _volumes(input: Array, weight: Array, bias: Array | None, depth: Depth, options: _Options) -> Array:
    n, outputs = len(input), len(weight)
    stride, padding, dilation = depth
    count = (input.shape[2] + 2 * padding - dilation * (weight.shape[2] - 1) - 1) // stride + 1
    size = _size(input.shape, weight.shape, options)
    frames = np.ascontiguousarray(input.swapaxes(1, 2))
    out = np.zeros((n, count, outputs, *size), input.dtype)
    for k, read, written in _slices(weight.shape[2], input.shape[2], count, depth):
        part = frames[:, read]
        product = _images(_flat(part), weight[:, :, k], None, options)
        out[:, written] += product.reshape(n, -1, outputs, *size)
    if bias is not None:
        out += bias.reshape(outputs, 1, 1)
    return np.ascontiguousarray(out.swapaxes(1, 2))


def _volumes_input(g: Array, weight: Array, input_shape: Ints, depth: Depth, options: _Options) -> Array:
    n, channels, count, *size = input_shape
    frames = np.ascontiguousarray(g.swapaxes(1, 2))
    out = np.zeros((n, count, channels, *size), g.dtype)
    for k, read, written in _slices(weight.shape[2], count, g.shape[2], depth):
        part = _flat(frames[:, written])
        product = _images_input(part, weight[:, :, k], (len(part), channels, *size), options)
        out[:, read] += product.reshape(n, -1, channels, *size)
    return np.ascontiguousarray(out.swapaxes(1, 2))


def _volumes_weight(g: Array, input: Array, weight_shape: Ints, depth: Depth, options: _Options) -> Array:
    g_frames, frames = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (g, input))
    out = np.zeros(weight_shape, g.dtype)
    shape = (*weight_shape[:2], *weight_shape[3:])
    for k, read, written in _slices(weight_shape[2], input.shape[2], g.shape[2], depth):
        out[:, :, k] = _images_weight(_flat(g_frames[:, written]), _flat(frames[:, read]), shape, options)
    return out


def _flat(frames: Array) -> Array:
    """(N, depth, ...) as (N * depth, ...)."""
    return np.ascontiguousarray(frames).reshape(-1, *frames.shape[2:])


def _slices(kernel: int, inputs: int, outputs: int, depth: Depth) -> Iterator[tuple[int, slice, slice]]:
    """(place in the kernel's depth, input frames, output frames) that meet; places that meet none are left out."""
    stride, padding, dilation = depth
    for k in range(kernel):
        shift = k * dilation - padding
        first = max(0, -(shift // stride))
        end = min(outputs, (inputs - 1 - shift) // stride + 1)
        if first < end:
            start = first * stride + shift
            yield k, slice(start, start + (end - first - 1) * stride + 1, stride), slice(first, end)
