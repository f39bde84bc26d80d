"""Convolution over one to three dimensions and its two gradients for the CPU, float32 and float64.

All are of volumes: an image has depth 1, and a signal height 1 as well. Where the processor has wide vectors, patches of float32 are
multiplied where they are (`direct.py`), and channels of their own as vectors (`channels.py`), unless an algorithm for images
(`frames.py`) needs less time. Other types, more dimensions and
empty arrays are `NotImplemented`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import channels, direct, frames
from .patches import Options, Triple
from .vectormath import compiled_for

Array = np.ndarray
Ints = tuple[int, ...]


def convolution(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """Cross-correlation of input (N, C, *size) with weight (O, C/groups, *kernel) plus bias (O,)."""
    if not _handled(input, weight) or (bias is not None and bias.dtype != input.dtype):
        return NotImplemented
    options = _options(stride, padding, dilation, groups)
    x, w = _as_volumes(input), _as_volumes(weight)
    size = tuple(
        [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(x.shape[2:], w.shape[2:], *options[:3], strict=True)
        ]
    )
    shape = (len(x), len(w), *size)
    way = _fastest(x, w.shape, shape, options, partial(direct.pays, shape, w.shape))
    out = way.convolve(x, w, bias, shape, options)
    return out.reshape(*shape[:2], *size[5 - input.ndim :])


def convolution_input(
    g: Array, weight: Array, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """The gradient of `convolution` for its input, from g (N, O, *)."""
    if not _handled(g, weight):
        return NotImplemented
    options = _options(stride, padding, dilation, groups)
    by_volume, w = _as_volumes(g), _as_volumes(weight)
    shape = (*input_shape[:2], *_three(input_shape[2:], 1))
    patches_pay = partial(direct.pays_input, by_volume.shape, w.shape, shape, options)
    way = _fastest(g, w.shape, shape, options, patches_pay)
    out = way.convolve_input(by_volume, w, shape, options)
    return out.reshape(input_shape)


def convolution_weight(
    g: Array, input: Array, weight_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """The gradient of `convolution` for its weight, from g (N, O, *)."""
    if not _handled(g, input):
        return NotImplemented
    options = _options(stride, padding, dilation, groups)
    by_volume, x = _as_volumes(g), _as_volumes(input)
    shape = (*weight_shape[:2], *_three(weight_shape[2:], 1))
    way = _fastest(g, shape, by_volume.shape, options, partial(direct.pays, by_volume.shape, shape))
    out = way.convolve_weight(by_volume, x, shape, options)
    return out.reshape(weight_shape)


def _fastest(
    like: Array, weight_shape: Ints, shape: Ints, options: Options, patches_pay: Callable[[], bool]
) -> Any:
    """The module whose algorithm needs least time, for arrays of the type of `like`. shape: as `frames.pays` takes it.

    patches_pay: asked for float32 alone, as plans are made for it.
    """
    if like.dtype.char == "f":
        if channels.pays(weight_shape, options.groups):
            return channels
        if patches_pay() and not frames.pays(weight_shape, shape, options):
            return direct
    return frames


def _handled(a: Array, b: Array) -> bool:
    return compiled_for(a, b) and a.size > 0 and b.size > 0 and 3 <= a.ndim <= 5


def _options(stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Options:
    return Options(_three(stride, 1), _three(padding, 0), _three(dilation, 1), groups)


def _as_volumes(x: Array) -> Array:
    return x.reshape(*x.shape[:2], *_three(x.shape[2:], 1))


def _three(numbers: Ints, missing: int) -> Triple:
    depth, height, width = (*(missing,) * (3 - len(numbers)), *numbers)
    return depth, height, width
