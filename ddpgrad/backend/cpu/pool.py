"""Compiled max and average pooling of images for the CPU, float32 and float64.

A window that meets the edge is cut; in `ceil_mode` a last window may begin inside of the image and
end beyond it. Other types are `NotImplemented`.
"""

from __future__ import annotations

import numpy as np

from .vectormath import compiled_for, kernel

Array = np.ndarray
Pair = tuple[int, int]

# With unsigned indices LLVM sees how far apart the elements are that it reads together.
u = np.uint64


def max_pool2d(
    input: Array, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool
) -> tuple[Array, Array]:
    """The largest element of each window of input (N, C, H, W): (out, indices), both (N, C, OH, OW).

    indices: int64, the place in the flattened image; the first of equal elements, the last NaN if
    there are any, as in PyTorch.
    """
    if not compiled_for(input):
        return NotImplemented
    shape = _pooled(input.shape, kernel_size, stride, padding, dilation, ceil_mode)
    out, indices = np.empty(shape, input.dtype), np.empty(shape, np.int64)
    x = np.ascontiguousarray(input).reshape(-1, *input.shape[2:])
    images = (len(x), *shape[2:])
    if kernel_size == stride == (2, 2) and padding == (0, 0) and dilation == (1, 1) and not ceil_mode:
        _max_pool_2x2(x, out.reshape(images), indices.reshape(images))
    else:
        _max_pool(x, kernel_size, stride, padding, dilation, out.reshape(images), indices.reshape(images))
    return out, indices


def max_pool2d_backward(g: Array, indices: Array, input_shape: tuple[int, ...]) -> Array:
    """Add each element of g (N, C, OH, OW) at its index in a zero image (N, C, H, W)."""
    if not compiled_for(g) or indices.dtype != np.int64:
        return NotImplemented
    n, channels, height, width = input_shape
    out = np.zeros(input_shape, g.dtype)
    _scatter(
        np.ascontiguousarray(g).reshape(n * channels, -1),
        np.ascontiguousarray(indices).reshape(n * channels, -1),
        out.reshape(n * channels, height * width),
    )
    return out


def avg_pool2d(
    input: Array, kernel_size: Pair, stride: Pair, padding: Pair, ceil_mode: bool, count_include_pad: bool
) -> Array:
    """The mean of each window of input (N, C, H, W); padding counts as zeros if `count_include_pad`."""
    if not compiled_for(input):
        return NotImplemented
    shape = _pooled(input.shape, kernel_size, stride, padding, (1, 1), ceil_mode)
    out = np.empty(shape, input.dtype)
    x = np.ascontiguousarray(input).reshape(-1, *input.shape[2:])
    _avg_pool(x, kernel_size, stride, padding, count_include_pad, out.reshape(len(x), *shape[2:]))
    return out


def avg_pool2d_backward(
    g: Array,
    input_shape: tuple[int, ...],
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Array:
    """The gradient of `avg_pool2d` for its input."""
    if not compiled_for(g):
        return NotImplemented
    out = np.zeros(input_shape, g.dtype)
    flat = np.ascontiguousarray(g).reshape(-1, *g.shape[2:])
    _spread(flat, kernel_size, stride, padding, count_include_pad, out.reshape(len(flat), *input_shape[2:]))
    return out


def _pooled(
    shape: tuple[int, ...], kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool
) -> tuple[int, ...]:
    sizes = []
    for n, k, s, p, d in zip(shape[2:], kernel_size, stride, padding, dilation, strict=True):
        reach = n + 2 * p - d * (k - 1) - 1
        count = (reach + (s - 1 if ceil_mode else 0)) // s + 1
        # The last window begins inside of the image or of the padding before it.
        sizes.append(count - 1 if ceil_mode and (count - 1) * s >= n + p else count)
    return (*shape[:2], *sizes)


@kernel
def _inside(place, size, stride, padding, dilation, length):
    """(place of the first element, number of elements) of the part of a window that lies in the image."""
    first = place * stride - padding
    count = size
    while first < 0:
        first, count = first + dilation, count - 1
    while first + (count - 1) * dilation >= length:
        count -= 1
    return first, count


@kernel
def _largest(image, top, high, down, left, wide, across):
    """The largest of high x wide elements and its place; without a branch that the data decide, but for NaN."""
    width = image.shape[1]
    best = image.dtype.type(-np.inf)
    nans = 0
    for i in range(high):
        for j in range(wide):
            v = image[u(top + i * down), u(left + j * across)]
            best = v if v > best else best
            nans += v != v
    at = top * width + left
    for i in range(high):
        for j in range(wide):
            y, z = top + (high - 1 - i) * down, left + (wide - 1 - j) * across
            at = y * width + z if image[u(y), u(z)] == best else at
    if nans:
        for i in range(high):
            for j in range(wide):
                y, z = top + i * down, left + j * across
                if image[y, z] != image[y, z]:
                    best, at = image[y, z], y * width + z
    return best, at


@kernel
def _max_pool(x, size, stride, padding, dilation, out, indices):
    images, height, width = x.shape
    _, down, across = out.shape
    for n in range(images):
        for row in range(down):
            top, high = _inside(row, size[0], stride[0], padding[0], dilation[0], height)
            for column in range(across):
                left, wide = _inside(column, size[1], stride[1], padding[1], dilation[1], width)
                best, at = _largest(x[n], top, high, dilation[0], left, wide, dilation[1])
                out[n, row, column] = best
                indices[n, row, column] = at


@kernel
def _max_pool_2x2(x, out, indices):
    images, down, across = out.shape
    width = x.shape[2]
    number = x.dtype.type
    for n in range(images):
        for row in range(down):
            top, bottom = x[n, 2 * row], x[n, 2 * row + 1]
            best, at = out[n, row], indices[n, row]
            start = 2 * row * width
            probe = number(0)
            for k in range(across):
                j = u(2) * u(k)
                a, b, c, d = top[j], top[j + u(1)], bottom[j], bottom[j + u(1)]
                high = b if b > a else a
                low = d if d > c else c
                largest = low if low > high else high
                best[k] = largest
                place = start + 2 * k
                i = place + width if c == largest else place + width + 1
                i = place + 1 if b == largest else i
                at[k] = place if a == largest else i
                probe += (a + b + c + d) * number(0)
            if probe != number(0):  # there is a NaN, or an infinity
                for k in range(across):
                    best[k], at[k] = _largest(x[n], 2 * row, 2, 1, 2 * k, 2, 1)


@kernel
def _scatter(g, indices, out):
    for n in range(g.shape[0]):
        for k in range(g.shape[1]):
            out[n, indices[n, k]] += g[n, k]


@kernel
def _window(place, size, stride, padding, length):
    """(first, end, elements with padding) of a window along one dimension; first and end lie in the image."""
    first = place * stride - padding
    end = min(first + size, length + padding)
    return max(first, 0), min(end, length), end - first


@kernel
def _avg_pool(x, size, stride, padding, include_pad, out):
    images, height, width = x.shape
    _, down, across = out.shape
    number = x.dtype.type
    for n in range(images):
        for row in range(down):
            top, bottom, high = _window(row, size[0], stride[0], padding[0], height)
            for column in range(across):
                left, right, wide = _window(column, size[1], stride[1], padding[1], width)
                total = number(0)
                for i in range(u(top), u(bottom)):
                    for j in range(u(left), u(right)):
                        total += x[n, i, j]
                count = high * wide if include_pad else (bottom - top) * (right - left)
                out[n, row, column] = total / number(count)


@kernel
def _spread(g, size, stride, padding, include_pad, out):
    images, height, width = out.shape
    _, down, across = g.shape
    number = g.dtype.type
    for n in range(images):
        for row in range(down):
            top, bottom, high = _window(row, size[0], stride[0], padding[0], height)
            for column in range(across):
                left, right, wide = _window(column, size[1], stride[1], padding[1], width)
                count = high * wide if include_pad else (bottom - top) * (right - left)
                share = g[n, row, column] / number(count)
                for i in range(top, bottom):
                    for j in range(left, right):
                        out[n, i, j] += share
