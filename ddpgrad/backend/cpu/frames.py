"""Convolution of volumes by algorithms for images, frame by frame, float32 and float64.

Each slice of the kernel along the depth is a convolution of images, of those frames that it meets; an image is one frame. No array
may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from . import conv2d, depthwise
from .patches import Options

Array = np.ndarray
Ints = tuple[int, ...]
Pair = tuple[int, int]

# Channels of a group from which Winograd's algorithm repays the sums of frames, and the copies of groups.
_CHANNELS = 32


class _Images(NamedTuple):
    """The options of images: of the last two dimensions."""

    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int


def _of_images(options: Options) -> _Images:
    stride, padding, dilation, groups = options
    return _Images(stride[1:], padding[1:], dilation[1:], groups)


def pays(weight_shape: Ints, shape: Ints, options: Options) -> bool:
    """Whether there is an algorithm that is done sooner than a product with patches, for a result of `shape` (N, O, D, H, W)."""
    outputs, channels, *kernel = weight_shape
    if depthwise.pays(weight_shape, options.groups) or _is_product(weight_shape, options):
        return True
    images = _of_images(options)
    if (kernel[0] > 1 or options.groups > 1) and min(channels, outputs // options.groups) < _CHANNELS:
        return False
    frames = (shape[0] * shape[2], *shape[3:])
    return conv2d.by_winograd(
        (outputs, channels, *kernel[1:]), images.stride, images.dilation, options.groups, frames
    )


def _is_product(weight_shape: Ints, options: Options) -> bool:
    """Whether each point is multiplied by itself: depth and height may then be one."""
    return max(weight_shape[2:]) == max(options.stride) == 1 and not any(options.padding)


def _beginning(shape: Ints) -> tuple[slice, ...]:
    """Of a result that a transposed convolution has padded, what it is made of: (N, O, *) is the shape of that."""
    return (slice(None), slice(None), *map(slice, shape[2:]))


def convolve(input: Array, weight: Array, bias: Array | None, shape: Ints, options: Options) -> Array:
    """Cross-correlation of input (N, C, D, H, W) with weight (O, C/groups, *kernel) plus bias (O,), of that shape."""
    images = _of_images(options)
    if _is_product(weight.shape, options):
        input = input.reshape(*input.shape[:2], 1, 1, -1)
    if input.shape[2] == weight.shape[2] == 1 and not options.padding[0]:
        return _convolve(input[:, :, 0], weight[:, :, 0], bias, images).reshape(shape)
    n, outputs, depth, *size = shape
    frames = np.ascontiguousarray(input.swapaxes(1, 2))
    out = np.zeros((n, depth, outputs, *size), input.dtype)
    for k, read, written in _slices(weight.shape[2], input.shape[2], depth, options):
        part = frames[:, read]
        product = _convolve(_flat(part), weight[:, :, k], None, images)
        out[:, written] += product.reshape(n, -1, outputs, *size)
    if bias is not None:
        out += bias.reshape(outputs, 1, 1)
    return np.ascontiguousarray(out.swapaxes(1, 2))


def convolve_input(g: Array, weight: Array, input_shape: Ints, options: Options) -> Array:
    """The gradient of `convolve` for its input, from g (N, O, *)."""
    images = _of_images(options)
    n, channels, depth, *size = input_shape
    if _is_product(weight.shape, options):
        if g.shape[2:] != (depth, *size):
            out = np.zeros(input_shape, g.dtype)
            reached = _beginning(g.shape)
            out[reached] = convolve_input(g, weight, out[reached].shape, options)
            return out
        g = g.reshape(*g.shape[:2], 1, 1, -1)
        depth, size = 1, g.shape[3:]
    if depth == weight.shape[2] == 1 and not options.padding[0]:
        return _convolve_input(g[:, :, 0], weight[:, :, 0], (n, channels, *size), images).reshape(input_shape)
    frames = np.ascontiguousarray(g.swapaxes(1, 2))
    out = np.zeros((n, depth, channels, *size), g.dtype)
    for k, read, written in _slices(weight.shape[2], depth, g.shape[2], options):
        part = _flat(frames[:, written])
        product = _convolve_input(part, weight[:, :, k], (len(part), channels, *size), images)
        out[:, read] += product.reshape(n, -1, channels, *size)
    return np.ascontiguousarray(out.swapaxes(1, 2))


def convolve_weight(g: Array, input: Array, weight_shape: Ints, options: Options) -> Array:
    """The gradient of `convolve` for its weight, from g (N, O, *)."""
    images = _of_images(options)
    shape = (*weight_shape[:2], *weight_shape[3:])
    if _is_product(weight_shape, options):
        input = np.ascontiguousarray(input[_beginning(g.shape)])
        g, input = (x.reshape(*x.shape[:2], 1, 1, -1) for x in (g, input))
    if input.shape[2] == weight_shape[2] == 1 and not options.padding[0]:
        return _convolve_weight(g[:, :, 0], input[:, :, 0], shape, images).reshape(weight_shape)
    g_frames, frames = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (g, input))
    out = np.zeros(weight_shape, g.dtype)
    for k, read, written in _slices(weight_shape[2], input.shape[2], g.shape[2], options):
        out[:, :, k] = _convolve_weight(_flat(g_frames[:, written]), _flat(frames[:, read]), shape, images)
    return out


def _convolve(input: Array, weight: Array, bias: Array | None, options: _Images) -> Array:
    if depthwise.pays(weight.shape, options.groups):
        return depthwise.convolve(input, weight, bias, *options[:3])
    return conv2d.convolve(input, weight, bias, *options)


def _convolve_input(g: Array, weight: Array, input_shape: Ints, options: _Images) -> Array:
    if depthwise.pays(weight.shape, options.groups):
        return depthwise.convolve_input(g, weight, input_shape, *options[:3])
    return conv2d.convolve_input(g, weight, input_shape, *options)


def _convolve_weight(g: Array, input: Array, weight_shape: Ints, options: _Images) -> Array:
    if depthwise.pays(weight_shape, options.groups):
        return depthwise.convolve_weight(g, input, weight_shape, *options[:3])
    return conv2d.convolve_weight(g, input, weight_shape, *options)


def _flat(frames: Array) -> Array:
    """(N, depth, ...) as (N * depth, ...)."""
    return np.ascontiguousarray(frames).reshape(-1, *frames.shape[2:])


def _slices(kernel: int, inputs: int, outputs: int, options: Options) -> Iterator[tuple[int, slice, slice]]:
    """(place in the kernel's depth, input frames, output frames) that meet; places that meet none are left out."""
    stride, padding, dilation = (option[0] for option in options[:3])
    for k in range(kernel):
        shift = k * dilation - padding
        first = max(0, -(shift // stride))
        end = min(outputs, (inputs - 1 - shift) // stride + 1)
        if first < end:
            start = first * stride + shift
            yield k, slice(start, start + (end - first - 1) * stride + 1, stride), slice(first, end)
