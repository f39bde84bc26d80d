"""Convolutions on the GPU: in 16 bits in one launch (`convolution_tiles.py`), else a product by cuBLAS for each place of the kernel.

The latter are added up in place and rounded once; floats of 16 bits are multiplied as they are and accumulated in float32.
"""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]

from ..windows import Ints, convolved_size, edges, taps
from . import convolution_tiles as tiles
from .matmul import product
from .source import accumulator, computes

Array = Any


def convolution(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """`input` (N, C, *size) correlated with `weight` (O, C/groups, *kernel), plus `bias` (O,): (N, O, *windows)."""
    if not computes(input, weight, bias):
        return NotImplemented
    if tiles.handles(input.shape, weight.shape, input.dtype, groups):
        return tiles.convolution(input, weight, bias, stride, padding, dilation, groups)
    size = convolved_size(input.shape[2:], weight.shape[2:], stride, padding, dilation)
    padded, total = _padded(input, padding), None
    for place, window in taps(weight.shape[2:], size, stride, dilation):
        part = _grouped(padded[(slice(None), slice(None), *window)], groups)
        total = product(_tap(weight, place, groups), part, accumulator(input.dtype), total)
    assert total is not None  # a kernel has a place
    out = total.reshape(len(input), len(weight), *size)
    if bias is not None:
        out += bias.reshape(-1, *[1] * len(size))
    return out.astype(input.dtype, copy=False)


def convolution_input(
    grad: Array, weight: Array, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """The gradient of `convolution` for its input, from the gradient `grad` of its output."""
    if not computes(grad, weight):
        return NotImplemented
    if tiles.handles(grad.shape, weight.shape, grad.dtype, groups):
        return tiles.convolution_input(grad, weight, input_shape, stride, padding, dilation, groups)
    (n, channels, *image), size = input_shape, grad.shape[2:]
    wide = accumulator(grad.dtype)
    padded = cupy.zeros((n, channels, *[m + 2 * p for m, p in zip(image, padding, strict=True)]), wide)
    flat = _grouped(grad, groups)
    for place, window in taps(weight.shape[2:], size, stride, dilation):
        part = product(_tap(weight, place, groups).swapaxes(1, 2), flat, wide)
        padded[(slice(None), slice(None), *window)] += part.reshape(n, channels, *size)
    inner = [slice(p, p + m) for m, p in zip(image, padding, strict=True)]
    return padded[(slice(None), slice(None), *inner)].astype(grad.dtype, order="C", copy=False)


def convolution_weight(
    grad: Array, input: Array, weight_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """The gradient of `convolution` for its weight, from the gradient `grad` of its output."""
    if not computes(grad, input):
        return NotImplemented
    if tiles.handles(input.shape, weight_shape, input.dtype, groups):
        return tiles.convolution_weight(grad, input, weight_shape, stride, padding, dilation, groups)
    padded, flat, wide = _padded(input, padding), _grouped(grad, groups), accumulator(grad.dtype)
    out = cupy.empty(weight_shape, wide)
    for place, window in taps(weight_shape[2:], grad.shape[2:], stride, dilation):
        part = _grouped(padded[(slice(None), slice(None), *window)], groups)
        out[(..., *place)] = product(flat, part.swapaxes(2, 3), wide).sum(0).reshape(weight_shape[:2])
    return out.astype(grad.dtype, copy=False)


def _padded(x: Array, padding: Ints) -> Array:
    return cupy.pad(x, edges(padding)) if any(padding) else x


def _grouped(x: Array, groups: int) -> Array:
    """(N, groups, C/groups, pixels) of (N, C, *size)."""
    n, channels, *size = x.shape
    return x.reshape(n, groups, channels // groups, math.prod(size))


def _tap(weight: Array, place: Ints, groups: int) -> Array:
    """(groups, O/groups, C/groups): the weights at one place of the kernel."""
    return weight[(..., *place)].reshape(groups, len(weight) // groups, weight.shape[1])
