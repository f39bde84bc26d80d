"""Patches of images as columns (im2col), and columns added up to images: each op is the other's gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend.windows import Ints, convolved_size, edges, taps
from ...core.tensor import Tensor
from ..dispatch.declare import op


def _reference(x: Any, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    size = convolved_size(x.shape[2:], kernel, stride, padding, dilation)
    x = np.pad(x, edges(padding))
    out = np.zeros((*x.shape[:2], *kernel, *size))
    for i, j, a, b in np.ndindex(*kernel, *size):
        out[:, :, i, j, a, b] = x[:, :, a * stride[0] + i * dilation[0], b * stride[1] + j * dilation[1]]
    return out.reshape(len(x), -1, math.prod(size))


@op(
    grads={
        "input": lambda F, g, input_shape, kernel_size, dilation, padding, stride: F.col2im(
            g, tuple(input_shape[2:]), kernel_size, dilation, padding, stride
        )
    },
    samples=lambda rng: [
        ((rng.standard_normal((2, 3, 5, 6)), (2, 3), (1, 1), (0, 0), (1, 1)), {}),
        ((rng.standard_normal((1, 2, 4, 5)), (2, 2), (2, 1), (1, 0), (1, 2)), {}),
    ],
    reference=_reference,
    method=False,
)
def im2col(F: Any, input: Tensor, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Tensor:
    """The patches of `input` (N, C, H, W) as columns: (N, C * kh * kw, patches)."""
    n, channels, *image = input.shape
    size = convolved_size(image, kernel_size, stride, padding, dilation)
    padded = F.constant_pad(input, edges(padding), 0.0) if any(padding) else input
    parts = [
        padded[(slice(None), slice(None), *window)] for _, window in taps(kernel_size, size, stride, dilation)
    ]
    return F.reshape(F.stack(parts, 2), (n, channels * math.prod(kernel_size), math.prod(size)))


def _reference_back(g: Any, image: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    """`im2col` is linear: its columns are what it makes of unit images."""
    channels = g.shape[1] // math.prod(kernel)
    out = np.zeros((len(g), channels, *image))
    for at in np.ndindex(channels, *image):
        unit = np.zeros((1, channels, *image))
        unit[(0, *at)] = 1
        out[(slice(None), *at)] = (g * _reference(unit, kernel, dilation, padding, stride)).sum((1, 2))
    return out


@op(
    grads={
        "g": lambda F, g, kernel_size, dilation, padding, stride: F.im2col(
            g, kernel_size, dilation, padding, stride
        )
    },
    samples=lambda rng: [
        ((rng.standard_normal((2, 12, 8)), (5, 3), (2, 2), (1, 1), (0, 0), (1, 1)), {}),
        ((rng.standard_normal((1, 8, 4)), (4, 5), (2, 2), (2, 1), (1, 0), (2, 2)), {}),
    ],
    reference=_reference_back,
    method=False,
)
def col2im(
    F: Any, g: Tensor, size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Tensor:
    """Columns (N, C * kh * kw, patches) added up at the places of (N, C, *size) that `im2col` reads them from."""
    n, channels = g.shape[0], g.shape[1] // math.prod(kernel_size)
    patches = convolved_size(size, kernel_size, stride, padding, dilation)
    columns = F.reshape(g, (n, channels, math.prod(kernel_size), *patches))
    out = F.new_zeros(g, (n, channels, *[m + 2 * p for m, p in zip(size, padding, strict=True)]))
    for i, (_, window) in enumerate(taps(kernel_size, patches, stride, dilation)):
        out[(slice(None), slice(None), *window)] += columns[:, :, i]
    return out[(..., *[slice(p, p + m) for p, m in zip(padding, size, strict=True)])]
