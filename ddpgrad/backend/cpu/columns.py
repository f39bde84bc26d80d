"""Unfolding of image patches into the columns of a matrix and back (im2col), compiled for the CPU.

Row (c, i, j) of the matrix holds what the element (i, j) of a kernel over channel c meets, one
column per image and output position: a convolution is then one matrix product.

Both ways go through a padded copy of one image plane, in which the columns that are `stride`
apart lie side by side: every row of the matrix is then made of contiguous runs.
"""

from __future__ import annotations

import numpy as np

from .vectormath import kernel

Pair = tuple[int, int]

# Runs are copied in whole vectors, past their end, which the next run then overwrites.
_VECTOR = 8
# With unsigned indices LLVM sees that a run is contiguous.
u = np.uint64


def unfold(
    input: np.ndarray,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    size: Pair,
    columns: np.ndarray,
) -> None:
    """Write the patches of input (n, C, H, W) for an output of `size` (OH, OW); outside of the image is 0.

    columns: C-contiguous, (n, rows, OH * OW) or, with the images side by side, (1, rows, n * OH * OW);
    rows after the first C * kh * kw stay as they are.
    """
    plane = _empty_plane(input.shape, stride, padding, input.dtype)
    pitches = _pitches(columns, len(input))
    _unfold(
        input,
        plane.reshape(-1),
        plane.shape[1:],
        kernel_size,
        stride,
        padding,
        dilation,
        size,
        pitches,
        columns.reshape(-1),
    )


def fold(
    columns: np.ndarray,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    size: Pair,
    out: np.ndarray,
) -> None:
    """Sum columns, as `unfold` lays them out, over the places of out (n, C, H, W) that it reads them from."""
    plane = _empty_plane(out.shape, stride, padding, out.dtype)
    pitches = _pitches(columns, len(out))
    _fold(
        columns.reshape(-1),
        plane.reshape(-1),
        plane.shape[1:],
        kernel_size,
        stride,
        padding,
        dilation,
        size,
        pitches,
        out,
    )


def _pitches(columns: np.ndarray, images: int) -> Pair:
    """How far apart in memory the same element is of two neighbouring images, and of two rows of one image."""
    stack, rows, across = columns.shape
    return (rows * across if stack == images else across // images), across


def _empty_plane(shape: tuple[int, ...], stride: Pair, padding: Pair, dtype: np.dtype) -> np.ndarray:
    """Zeros (height with padding, stride, columns of each phase and room for a vector)."""
    height, width = shape[2] + 2 * padding[0], shape[3] + 2 * padding[1]
    return np.zeros((height, stride[1], -(-width // stride[1]) + _VECTOR), dtype)


@kernel
def _unfold(x, plane, layout, kernel_size, stride, padding, dilation, size, pitches, out):
    images, channels, height, width = x.shape
    (high, wide), (down, across) = kernel_size, size
    phases, pitch = layout
    # The runs that can be copied in whole vectors without writing past the end of their block.
    vectors = (across + _VECTOR - 1) // _VECTOR * _VECTOR
    fast = (down * across - vectors) // across + 1 if down * across >= vectors else 0
    for n in range(images):
        for c in range(channels):
            for y in range(height):
                for p in range(phases):
                    # The first column of this phase, and its place in the plane.
                    first = (p - padding[1]) % phases
                    source = x[n, c, y]
                    line = plane[((y + padding[0]) * phases + p) * pitch + (first + padding[1]) // phases :]
                    for k in range((width - first + phases - 1) // phases):
                        line[k] = source[u(first) + u(k) * u(phases)]
            for i in range(high):
                for j in range(wide):
                    shift = j * dilation[1]
                    start = (i * dilation[0] * phases + shift % phases) * pitch + shift // phases
                    block = n * pitches[0] + ((c * high + i) * wide + j) * pitches[1]
                    for r in range(fast):
                        s, t = u(start + r * stride[0] * phases * pitch), u(block + r * across)
                        for _ in range(0, across, _VECTOR):
                            v0, v1, v2, v3 = plane[s], plane[s + u(1)], plane[s + u(2)], plane[s + u(3)]
                            v4, v5, v6, v7 = (
                                plane[s + u(4)],
                                plane[s + u(5)],
                                plane[s + u(6)],
                                plane[s + u(7)],
                            )
                            out[t], out[t + u(1)], out[t + u(2)], out[t + u(3)] = v0, v1, v2, v3
                            out[t + u(4)], out[t + u(5)], out[t + u(6)], out[t + u(7)] = v4, v5, v6, v7
                            s, t = s + u(_VECTOR), t + u(_VECTOR)
                    for r in range(fast, down):
                        s, t = u(start + r * stride[0] * phases * pitch), u(block + r * across)
                        for k in range(across):
                            out[t + u(k)] = plane[s + u(k)]


@kernel
def _fold(columns, plane, layout, kernel_size, stride, padding, dilation, size, pitches, out):
    images, channels, height, width = out.shape
    (high, wide), (down, across) = kernel_size, size
    phases, pitch = layout
    zero = out.dtype.type(0)
    whole = across // _VECTOR * _VECTOR
    for n in range(images):
        for c in range(channels):
            for k in range(plane.size):
                plane[k] = zero
            for i in range(high):
                for j in range(wide):
                    shift = j * dilation[1]
                    start = (i * dilation[0] * phases + shift % phases) * pitch + shift // phases
                    block = n * pitches[0] + ((c * high + i) * wide + j) * pitches[1]
                    for r in range(down):
                        t, s = u(start + r * stride[0] * phases * pitch), u(block + r * across)
                        for _ in range(0, whole, _VECTOR):
                            v0, v1 = plane[t] + columns[s], plane[t + u(1)] + columns[s + u(1)]
                            v2, v3 = plane[t + u(2)] + columns[s + u(2)], plane[t + u(3)] + columns[s + u(3)]
                            v4, v5 = plane[t + u(4)] + columns[s + u(4)], plane[t + u(5)] + columns[s + u(5)]
                            v6, v7 = plane[t + u(6)] + columns[s + u(6)], plane[t + u(7)] + columns[s + u(7)]
                            plane[t], plane[t + u(1)], plane[t + u(2)], plane[t + u(3)] = v0, v1, v2, v3
                            plane[t + u(4)], plane[t + u(5)], plane[t + u(6)], plane[t + u(7)] = (
                                v4,
                                v5,
                                v6,
                                v7,
                            )
                            s, t = s + u(_VECTOR), t + u(_VECTOR)
                        for k in range(across - whole):
                            plane[t + u(k)] += columns[s + u(k)]
            for y in range(height):
                for p in range(phases):
                    first = (p - padding[1]) % phases
                    sink = out[n, c, y]
                    line = plane[((y + padding[0]) * phases + p) * pitch + (first + padding[1]) // phases :]
                    for k in range((width - first + phases - 1) // phases):
                        sink[u(first) + u(k) * u(phases)] = line[k]
