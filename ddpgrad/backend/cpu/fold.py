"""Patches of images as columns and back for the CPU, float32 and float64; other types are `NotImplemented`."""

from __future__ import annotations

import math

import numpy as np

from .columns import fold, unfold
from .vectormath import compiled_for

Array = np.ndarray
Pair = tuple[int, int]


def im2col(input: Array, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Array:
    """The patches of input (N, C, H, W) as columns: (N, C * kh * kw, patches)."""
    if not compiled_for(input):
        return NotImplemented
    n, channels, *image = input.shape
    size = _patches((image[0], image[1]), kernel_size, dilation, padding, stride)
    out = np.empty((n, channels * math.prod(kernel_size), math.prod(size)), input.dtype)
    unfold(np.ascontiguousarray(input), kernel_size, stride, padding, dilation, size, out)
    return out


def col2im(g: Array, size: Pair, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Array:
    """Columns (N, C * kh * kw, patches) added up at the places of (N, C, *size) that they come from."""
    if not compiled_for(g):
        return NotImplemented
    out = np.empty((len(g), g.shape[1] // math.prod(kernel_size), *size), g.dtype)
    patches = _patches(size, kernel_size, dilation, padding, stride)
    fold(np.ascontiguousarray(g), kernel_size, stride, padding, dilation, patches, out)
    return out


def _patches(image: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Pair:
    down, across = (
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(image, kernel, stride, padding, dilation, strict=True)
    )
    return down, across
