"""Convolution of images and its two gradients for the CPU, float32 and float64.

The method follows from the shape: a 1x1 kernel without padding is a matrix product as it is, a
3x3 kernel with stride 1 goes by Winograd's algorithm (`winograd.py`), group by group, unless images are few and small;
everything else by patches unfolded into columns (`columns.py`) for a few images at a time, in a buffer that is used again.
No array may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import winograd
from .columns import fold, unfold
from .float_product import matmul

Array = np.ndarray
Pair = tuple[int, int]

# Columns that make a matrix product efficient: images with fewer are put side by side. A gradient of the
# weight sums over columns, and each product has to be added to the others: so it wants more.
_COLUMNS = 256
_COLUMNS_SUMMED = 1024
# Rows up to which the product for the gradient of the weight is made transposed.
_FEW_ROWS = 128
# Elements of the column buffer beyond which no further image joins.
_BUFFER = 64 * 1024


def convolve(
    input: Array, weight: Array, bias: Array | None, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Array:
    """Cross-correlation of input (N, C, H, W) with weight (O, C/groups, kh, kw) plus bias (O,): (N, O, OH, OW)."""
    outputs, _, *kernel = weight.shape
    size = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(input.shape[2:], kernel, stride, padding, dilation, strict=True)
    )
    weight = np.ascontiguousarray(weight)
    if by_winograd(weight.shape, stride, dilation, groups, (len(input), *size)):
        biases = [None] * groups if bias is None else np.split(bias, groups)
        parts = zip(_split(input, groups), np.split(weight, groups), biases, strict=True)
        return _joined([winograd.convolve(x, w, b, padding) for x, w, b in parts])
    out = np.empty((len(input), outputs, *size), input.dtype)
    by_group = out.reshape(len(out), groups, outputs // groups, size[0] * size[1])
    rows = weight.reshape(groups, outputs // groups, -1)
    # The bias is one more column of the weight, which meets a row of ones, where patches are copied anyway.
    ones = bias is not None and groups == 1 and kernel != [1, 1]
    if bias is not None and ones:
        rows = np.concatenate((rows, bias.reshape(1, outputs, 1)), axis=2)
    for images, columns in _columns(input, kernel, size, stride, padding, dilation, groups, _COLUMNS, ones):
        sink = by_group[images]
        if len(columns) == len(sink):
            _times(rows, columns, sink)
        else:
            product = matmul(rows, columns[0])
            sink[...] = product.reshape(*product.shape[:2], len(sink), -1).transpose(2, 0, 1, 3)
    if bias is not None and not ones:
        out += bias.reshape(outputs, 1, 1)
    return out


def convolve_input(
    g: Array,
    weight: Array,
    input_shape: tuple[int, ...],
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """The gradient of `convolve` for its input, from g (N, O, OH, OW)."""
    g, weight = np.ascontiguousarray(g), np.ascontiguousarray(weight)
    channels = input_shape[1]
    n, outputs, *size = g.shape
    kernel = weight.shape[2:]
    if max(padding) <= 2 and by_winograd(weight.shape, stride, dilation, groups, (n, *input_shape[2:])):
        parts = zip(_split(g, groups), np.split(weight, groups), strict=True)
        return _joined([winograd.convolve_input(x, w, padding) for x, w in parts])
    rows = weight.reshape(groups, outputs // groups, -1).swapaxes(1, 2)
    by_group = g.reshape(n, groups, outputs // groups, size[0] * size[1])
    if kernel == (1, 1) and padding == (0, 0):
        product = _times(rows, by_group).reshape(n, channels, *size)
        if stride == (1, 1):
            return product
        out = np.zeros(input_shape, g.dtype)
        out[:, :, : stride[0] * size[0] : stride[0], : stride[1] * size[1] : stride[1]] = product
        return out
    out = np.empty(input_shape, g.dtype)
    height = channels * kernel[0] * kernel[1]
    for images in _together(n, height, size[0] * size[1], _COLUMNS):
        part = _side_by_side(by_group[images], _COLUMNS)
        columns = _times(rows, part).reshape(len(part), height, -1)
        fold(columns, kernel, stride, padding, dilation, (size[0], size[1]), out[images])
    return out


def convolve_weight(
    g: Array,
    input: Array,
    weight_shape: tuple[int, ...],
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """The gradient of `convolve` for its weight, from g (N, O, OH, OW)."""
    g = np.ascontiguousarray(g)
    outputs, _, *kernel = weight_shape
    size = g.shape[2:]
    if by_winograd(weight_shape, stride, dilation, groups, (len(g), *size)):
        parts = zip(_split(g, groups), _split(input, groups), strict=True)
        return np.concatenate([winograd.convolve_weight(a, b, padding) for a, b in parts])
    by_group = g.reshape(len(g), groups, outputs // groups, size[0] * size[1])
    rows, height = outputs // groups, weight_shape[1] * kernel[0] * kernel[1]
    # A product of few rows by many columns is slower than its transpose.
    upright = rows > _FEW_ROWS
    total = np.zeros((groups, rows, height) if upright else (groups, height, rows), g.dtype)
    wanted = _COLUMNS_SUMMED
    for images, columns in _columns(input, kernel, size, stride, padding, dilation, groups, wanted, False):
        part = _side_by_side(by_group[images], wanted)
        left, right = (part, columns) if upright else (columns, part)
        for a, b in zip(left, right.swapaxes(2, 3), strict=True):
            total += matmul(a, b)
    return np.ascontiguousarray(total if upright else total.swapaxes(1, 2)).reshape(weight_shape)


def _times(rows: Array, parts: Array, out: Array | None = None) -> Array:
    """rows (groups, M, K) @ each of parts (n, groups, K, positions), as (n, groups, M, positions)."""
    if out is None:
        out = np.empty((*parts.shape[:2], rows.shape[1], parts.shape[3]), rows.dtype)
    for part, to in zip(parts, out, strict=True):
        matmul(rows, part, to)
    return out


def by_winograd(
    weight_shape: tuple[int, ...], stride: Pair, dilation: Pair, groups: int, shape: tuple[int, ...]
) -> bool:
    outputs, channels, *kernel = weight_shape
    return (
        kernel == [3, 3]
        and stride == dilation == (1, 1)
        and winograd.pays(channels, outputs // groups, shape)
    )


def _split(x: Array, groups: int) -> list[Array]:
    """The channels of each group of x (N, C, H, W), C-contiguous."""
    return [np.ascontiguousarray(part) for part in np.split(x, groups, axis=1)]


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _together(n: int, rows: int, positions: int, wanted: int) -> Iterator[slice]:
    """The images 0 to n in slices for one product each: by `wanted` columns, or else by the buffer's size."""
    count = wanted // positions if wanted >= 2 * positions else _BUFFER // (rows * positions)
    count = max(1, count)
    for first in range(0, n, count):
        yield slice(first, min(first + count, n))


def _side_by_side(x: Array, wanted: int) -> Array:
    """x (n, groups, rows, positions), as (1, groups, rows, n * positions) if one image is short of columns."""
    n, groups, rows, positions = x.shape
    if n == 1 or wanted < 2 * positions:
        return x
    return np.ascontiguousarray(x.transpose(1, 2, 0, 3)).reshape(1, groups, rows, n * positions)


def _columns(
    input: Array,
    kernel: list[int],
    size: tuple[int, ...],
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    wanted: int,
    ones: bool,
) -> Iterator[tuple[slice, Array]]:
    """(images, their columns), the latter in a buffer that the next pair reuses.

    Columns are (n, groups, C/groups * kh * kw, OH * OW), or (1, ..., n * OH * OW) if one image has
    less than half of `wanted`. With `ones`, which needs groups == 1, a row of ones follows.
    """
    n, channels = input.shape[:2]
    positions = size[0] * size[1]
    if kernel == [1, 1] and padding == (0, 0):
        input = input[:, :, :: stride[0], :: stride[1]]
        if not ones:
            by_group = np.ascontiguousarray(input).reshape(n, groups, channels // groups, positions)
            for images in _together(n, channels, positions, wanted):
                yield images, _side_by_side(by_group[images], wanted)
            return
        stride = (1, 1)
    input = np.ascontiguousarray(input)
    rows = channels * kernel[0] * kernel[1] + ones
    buffer = np.empty(0, input.dtype)
    for images in _together(n, rows, positions, wanted):
        part = input[images]
        count = len(part) * rows * positions
        buffer = buffer if len(buffer) >= count else np.empty(count, input.dtype)
        shape = (1, rows, len(part) * positions) if wanted >= 2 * positions else (len(part), rows, positions)
        columns = buffer[:count].reshape(shape)
        unfold(part, (kernel[0], kernel[1]), stride, padding, dilation, (size[0], size[1]), columns)
        if ones:
            columns[:, -1] = 1
        yield images, columns.reshape(shape[0], groups, rows // groups, shape[2])
