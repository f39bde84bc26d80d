"""Convolution of images in which every channel is a group of its own, compiled for the CPU.

The products of `conv2d.py` would have one row here. Instead a padded copy of one image plane is
made, in which rows and columns that are `stride` apart lie side by side, and the output is laid
out with rows as long as those of the copy: what one element of the kernel meets is then one run
of memory, which is multiplied by one number. No array may be empty.
"""

from __future__ import annotations

import numpy as np

from .vectormath import kernel

Array = np.ndarray
Pair = tuple[int, int]

# Elements that are summed over the kernel at a time, so that they stay in the first level of cache.
_RUN = 2048
# With unsigned indices LLVM sees that a run is contiguous.
u = np.uint64


def pays(weight_shape: tuple[int, ...], groups: int) -> bool:
    """True for a weight (O, 1, kh, kw) of as many groups as the input has channels."""
    return groups > 1 and weight_shape[1] == 1


def convolve(
    input: Array, weight: Array, bias: Array | None, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """Cross-correlation of input (N, C, H, W) with weight (O, 1, kh, kw) plus bias (O,): (N, O, OH, OW)."""
    outputs = len(weight)
    each = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    height, width = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in each)
    size = (height, width)
    out = np.empty((len(input), outputs, *size), input.dtype)
    offset = np.zeros(outputs, input.dtype) if bias is None else np.ascontiguousarray(bias)
    plane, rows = _buffers(input.shape, size, stride, padding, input.dtype)
    starts = _starts(weight.shape, plane.shape, dilation)
    _convolve(np.ascontiguousarray(input), _weights(weight), offset, starts, padding, plane, rows, out)
    return out


def convolve_input(
    g: Array, weight: Array, input_shape: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The gradient of `convolve` for its input, from g (N, O, OH, OW)."""
    out = np.empty(input_shape, g.dtype)
    plane, rows = _buffers(input_shape, (g.shape[2], g.shape[3]), stride, padding, g.dtype)
    starts = _starts(weight.shape, plane.shape, dilation)
    _convolve_input(np.ascontiguousarray(g), _weights(weight), starts, padding, plane, rows, out)
    return out


def convolve_weight(
    g: Array, input: Array, weight_shape: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The gradient of `convolve` for its weight, from g (N, O, OH, OW)."""
    out = np.zeros((weight_shape[0], weight_shape[2] * weight_shape[3]), g.dtype)
    plane, rows = _buffers(input.shape, (g.shape[2], g.shape[3]), stride, padding, g.dtype)
    starts = _starts(weight_shape, plane.shape, dilation)
    _convolve_weight(np.ascontiguousarray(g), np.ascontiguousarray(input), starts, padding, plane, rows, out)
    return out.reshape(weight_shape)


def _weights(weight: Array) -> Array:
    return np.ascontiguousarray(weight).reshape(len(weight), -1)


def _buffers(
    shape: tuple[int, ...], size: Pair, stride: Pair, padding: Pair, dtype: np.dtype
) -> tuple[Array, Array]:
    """Zeros for a padded plane by phases (sh, sw, high, wide), and for an output in rows of `wide`."""
    high, wide = (-(-(n + 2 * p) // s) for n, p, s in zip(shape[2:], padding, stride, strict=True))
    return np.zeros((*stride, high, wide), dtype), np.zeros((size[0], wide), dtype)


def _starts(weight_shape: tuple[int, ...], plane: tuple[int, ...], dilation: Pair) -> Array:
    """(kh * kw,): where in the plane the run begins that each element of the kernel meets."""
    down, across, high, wide = plane
    i = (np.arange(weight_shape[2]) * dilation[0])[:, None]
    j = np.arange(weight_shape[3]) * dilation[1]
    phase = i % down * across + j % across
    return (phase * (high * wide) + i // down * wide + j // across).reshape(-1)


@kernel
def _place(y, phase, plane, padding):
    """Where row y of an image is in the plane: (first column of this phase, place of that column)."""
    down, across, high, wide = plane.shape
    row = y + padding[0]
    first = (phase - padding[1]) % across
    block = ((row % down) * across + phase) * high + row // down
    return first, block * wide + (first + padding[1]) // across


@kernel
def _pack(image, padding, plane):
    height, width = image.shape
    across = plane.shape[1]
    flat = plane.reshape(-1)
    for y in range(height):
        for phase in range(across):
            first, start = _place(y, phase, plane, padding)
            source = image[y]
            for k in range((width - first + across - 1) // across):
                flat[u(start) + u(k)] = source[u(first) + u(k) * u(across)]


@kernel
def _unpack(plane, padding, image):
    height, width = image.shape
    across = plane.shape[1]
    flat = plane.reshape(-1)
    for y in range(height):
        for phase in range(across):
            first, start = _place(y, phase, plane, padding)
            sink = image[y]
            for k in range((width - first + across - 1) // across):
                sink[u(first) + u(k) * u(across)] = flat[u(start) + u(k)]


@kernel
def _convolve(x, weight, offset, starts, padding, plane, rows, out):
    images, outputs, down, across = out.shape
    multiple = outputs // x.shape[1]
    flat, sums = plane.reshape(-1), rows.reshape(-1)
    length = (down - 1) * rows.shape[1] + across
    for n in range(images):
        for o in range(outputs):
            if o % multiple == 0:
                _pack(x[n, o // multiple], padding, plane)
            for first in range(0, length, _RUN):
                part = sums[first : min(first + _RUN, length)]
                for k in range(part.size):
                    part[k] = offset[o]
                for tap in range(starts.size):
                    w, source = weight[o, tap], flat[starts[tap] + first :]
                    for k in range(part.size):
                        part[k] += w * source[k]
            for row in range(down):
                source, sink = rows[row], out[n, o, row]
                for k in range(across):
                    sink[k] = source[k]


@kernel
def _convolve_input(g, weight, starts, padding, plane, rows, out):
    images, outputs, down, across = g.shape
    multiple = outputs // out.shape[1]
    flat, spread = plane.reshape(-1), rows.reshape(-1)
    length = (down - 1) * rows.shape[1] + across
    zero = g.dtype.type(0)
    for n in range(images):
        for o in range(outputs):
            if o % multiple == 0:
                for k in range(flat.size):
                    flat[k] = zero
            for row in range(down):
                source, sink = g[n, o, row], rows[row]
                for k in range(across):
                    sink[k] = source[k]
            for first in range(0, length, _RUN):
                part = spread[first : min(first + _RUN, length)]
                for tap in range(starts.size):
                    w, sink = weight[o, tap], flat[starts[tap] + first :]
                    for k in range(part.size):
                        sink[k] += w * part[k]
            if (o + 1) % multiple == 0:
                _unpack(plane, padding, out[n, o // multiple])


@kernel
def _convolve_weight(g, x, starts, padding, plane, rows, out):
    images, outputs, down, across = g.shape
    multiple = outputs // x.shape[1]
    flat, spread = plane.reshape(-1), rows.reshape(-1)
    length = (down - 1) * rows.shape[1] + across
    zero = g.dtype.type(0)
    for n in range(images):
        for o in range(outputs):
            if o % multiple == 0:
                _pack(x[n, o // multiple], padding, plane)
            for row in range(down):
                source, sink = g[n, o, row], rows[row]
                for k in range(across):
                    sink[k] = source[k]
            for first in range(0, length, _RUN):
                part = spread[first : min(first + _RUN, length)]
                for tap in range(starts.size):
                    source = flat[starts[tap] + first :]
                    total = zero
                    for k in range(part.size):
                        total += part[k] * source[k]
                    out[o, tap] += total
