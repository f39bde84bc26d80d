"""Convolution whose kernel is as large as its stride, without padding: the input falls apart into tiles.

Every element belongs to one tile at most, so each of the three products is a matrix product between
two rearrangements of memory, in any number of dimensions. Patch embeddings and the upsampling
layers of many networks are of this kind.
"""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray
Ints = tuple[int, ...]


def fits(kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> bool:
    """Whether a convolution with these options is one of tiles, and not one of single points."""
    return (
        groups == 1
        and kernel == stride
        and not any(padding)
        and all(d == 1 for d in dilation)
        and max(kernel) > 1
    )


def convolve(input: Array, weight: Array, bias: Array | None) -> Array:
    """input (N, C, *size), weight (O, C, *kernel), bias (O,): (N, O, *tiles)."""
    kernel = weight.shape[2:]
    tiles = tuple([n // k for n, k in zip(input.shape[2:], kernel, strict=True)])
    out = np.matmul(weight.reshape(len(weight), -1), _columns(input, kernel, tiles))
    if bias is not None:
        out += bias[:, None]
    return out.reshape(len(input), len(weight), *tiles)


def convolve_input(g: Array, weight: Array, input_shape: Ints) -> Array:
    """The gradient of `convolve` for its input, from g (N, O, *tiles)."""
    n, outputs, *tiles = g.shape
    channels, *kernel = weight.shape[1:]
    columns = np.matmul(weight.reshape(outputs, -1).T, g.reshape(n, outputs, -1))
    columns = columns.reshape(n, channels, *kernel, *tiles)
    dims = len(kernel)
    order = [2 + i + dims * part for i in range(dims) for part in (1, 0)]
    covered = tuple([t * k for t, k in zip(tiles, kernel, strict=True)])
    image = columns.transpose(0, 1, *order).reshape(n, channels, *covered)
    if image.shape == input_shape:
        return image
    out = np.zeros(input_shape, g.dtype)  # what no tile covers has no gradient
    out[(..., *[slice(c) for c in covered])] = image
    return out


def convolve_weight(g: Array, input: Array, weight_shape: Ints) -> Array:
    """The gradient of `convolve` for its weight, from g (N, O, *tiles)."""
    n, outputs, *tiles = g.shape
    columns = _columns(input, weight_shape[2:], tuple(tiles))
    products = np.matmul(g.reshape(n, outputs, -1), columns.swapaxes(1, 2))
    return products.sum(0).reshape(weight_shape)


def _columns(input: Array, kernel: Ints, tiles: Ints) -> Array:
    """The tiles of input (N, C, *size) as the columns of matrices (N, C * kernel elements, tiles)."""
    n, channels = input.shape[:2]
    covered = [slice(t * k) for t, k in zip(tiles, kernel, strict=True)]
    split = [length for pair in zip(tiles, kernel, strict=True) for length in pair]
    dims = len(kernel)
    order = [2 + 2 * i + part for part in (1, 0) for i in range(dims)]
    pieces = input[(..., *covered)].reshape(n, channels, *split).transpose(0, 1, *order)
    return pieces.reshape(n, channels * math.prod(kernel), math.prod(tiles))
