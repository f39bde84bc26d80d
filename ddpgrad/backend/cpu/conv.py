"""2-D convolution and its two gradients for the CPU, float32 and float64.

The method follows from the shape: a 1x1 kernel with stride 1 is a matrix product as it is, a
3x3 kernel with stride 1 goes by Winograd's algorithm (`winograd.py`), everything else by patches
unfolded into columns (`columns.py`) for a few images at a time, in a buffer that is used again.
Other types are `NotImplemented`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import winograd
from .columns import fold, unfold
from .vectormath import compiled_for

Array = np.ndarray
Pair = tuple[int, int]

# Images are unfolded together until a product has this many columns, and for gradients of the weight,
# which each product adds to, this many elements.
_COLUMNS = 256
_ELEMENTS = 512 * 1024


def conv2d(
    input: Array, weight: Array, bias: Array | None, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Array:
    """Cross-correlation of input (N, C, H, W) with weight (O, C/groups, kh, kw) plus bias (O,): (N, O, OH, OW)."""
    if not compiled_for(input, weight, *(() if bias is None else (bias,))):
        return NotImplemented
    n, _, height, width = input.shape
    outputs, _, kh, kw = weight.shape
    oh, ow = _size(height, kh, stride[0], padding[0], dilation[0]), _size(width, kw, stride[1], padding[1], dilation[1])
    if not n * outputs * oh * ow * weight.size:
        return NotImplemented
    if (kh, kw) == (1, 1) and padding == (0, 0):
        input, stride = input[:, :, :: stride[0], :: stride[1]], (1, 1)
    input, weight = np.ascontiguousarray(input), np.ascontiguousarray(weight)
    if _by_winograd(weight.shape, stride, dilation, groups, padding, ow):
        return winograd.convolve(input, weight, bias, padding)
    out = np.empty((n, outputs, oh, ow), input.dtype)
    by_group = out.reshape(n, groups, outputs // groups, oh * ow)
    rows = weight.reshape(groups, outputs // groups, -1)
    shift = None if bias is None else bias.reshape(groups, outputs // groups, 1)
    for images, columns in _columns(input, (kh, kw), (oh, ow), stride, padding, dilation, groups, _COLUMNS):
        sink = by_group[images]
        if len(sink) == 1:
            np.matmul(rows, columns, out=sink[0])
        else:
            product = np.matmul(rows, columns)
            sink[...] = product.reshape(*product.shape[:2], len(sink), oh * ow).transpose(2, 0, 1, 3)
        if shift is not None:
            sink += shift
    return out


def conv2d_input(
    g: Array,
    weight: Array,
    input_shape: tuple[int, ...],
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """The gradient of `conv2d` for its input, from g (N, O, OH, OW)."""
    if not compiled_for(g, weight) or not g.size * weight.size:
        return NotImplemented
    g, weight = np.ascontiguousarray(g), np.ascontiguousarray(weight)
    n, channels, _, width = input_shape
    outputs, _, kh, kw = weight.shape
    oh, ow = g.shape[2:]
    if max(padding) <= 2 and _by_winograd(weight.shape, stride, dilation, groups, padding, width):
        return winograd.convolve_input(g, weight, padding)
    rows = weight.reshape(groups, outputs // groups, -1).swapaxes(1, 2)
    by_group = g.reshape(n, groups, outputs // groups, oh * ow)
    if (kh, kw) == (1, 1) and padding == (0, 0):
        product = np.matmul(rows, by_group).reshape(n, channels, oh, ow)
        if stride == (1, 1):
            return product
        out = np.zeros(input_shape, g.dtype)
        out[:, :, :: stride[0], :: stride[1]] = product
        return out
    out = np.empty(input_shape, g.dtype)
    count = max(1, min(n, _COLUMNS // (oh * ow)))
    buffer = np.empty((channels * kh * kw, count * oh * ow), g.dtype)
    for first in range(0, n, count):
        part = _images_inside(by_group[first : first + count])
        columns = buffer.reshape(-1)[: len(buffer) * part.shape[2]].reshape(groups, -1, part.shape[2])
        np.matmul(rows, part, out=columns)
        target = out[first : first + count]
        fold(columns.reshape(channels, kh, kw, len(target), oh, ow), stride, padding, dilation, target)
    return out


def conv2d_weight(
    g: Array,
    input: Array,
    weight_shape: tuple[int, ...],
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """The gradient of `conv2d` for its weight, from g (N, O, OH, OW)."""
    if not compiled_for(g, input) or not g.size * input.size:
        return NotImplemented
    outputs, _, kh, kw = weight_shape
    if (kh, kw) == (1, 1) and padding == (0, 0):
        input, stride = input[:, :, :: stride[0], :: stride[1]], (1, 1)
    g, input = np.ascontiguousarray(g), np.ascontiguousarray(input)
    oh, ow = g.shape[2:]
    if _by_winograd(weight_shape, stride, dilation, groups, padding, ow):
        return winograd.convolve_weight(g, input, padding)
    by_group = g.reshape(len(g), groups, outputs // groups, oh * ow)
    wanted = max(_COLUMNS, _ELEMENTS // (input.shape[1] * kh * kw))
    total = None
    for images, columns in _columns(input, (kh, kw), (oh, ow), stride, padding, dilation, groups, wanted):
        product = np.matmul(_images_inside(by_group[images]), columns.swapaxes(1, 2))
        total = product if total is None else np.add(total, product, out=total)
    assert total is not None
    return total.reshape(weight_shape)


def _size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _by_winograd(
    weight_shape: tuple[int, ...], stride: Pair, dilation: Pair, groups: int, padding: Pair, width: int
) -> bool:
    outputs, channels, *kernel = weight_shape
    return (
        kernel == [3, 3]
        and stride == dilation == (1, 1)
        and groups == 1
        and winograd.pays(channels, outputs, width)
    )


def _images_inside(x: Array) -> Array:
    """x (n, groups, rows, positions) as (groups, rows, n * positions)."""
    if len(x) == 1:
        return x[0]
    return np.ascontiguousarray(x.transpose(1, 2, 0, 3)).reshape(x.shape[1], x.shape[2], -1)


def _columns(
    input: Array, kernel: Pair, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int, wanted: int
) -> Iterator[tuple[slice, Array]]:
    """(images, their columns (groups, C/groups * kh * kw, images * OH * OW)); the next pair reuses the buffer."""
    n, channels = input.shape[:2]
    positions = size[0] * size[1]
    count = max(1, min(n, wanted // positions))
    if kernel == stride == (1, 1) and padding == (0, 0):
        by_group = input.reshape(n, groups, channels // groups, positions)
        for first in range(0, n, count):
            images = slice(first, min(first + count, n))
            yield images, _images_inside(by_group[images])
        return
    rows = channels * kernel[0] * kernel[1]
    buffer = np.empty(rows * count * positions, input.dtype)
    for first in range(0, n, count):
        images = slice(first, min(first + count, n))
        part = input[images]
        columns = buffer[: rows * len(part) * positions]
        unfold(part, kernel, stride, padding, dilation, columns.reshape(channels, *kernel, len(part), *size))
        yield images, columns.reshape(groups, rows // groups, len(part) * positions)
