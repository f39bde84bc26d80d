"""Compiled dropout for the CPU: a mask applied in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..layout import beside
from .threads import shared
from .vectormath import compiled_for, kernel


def dropout(input: np.ndarray, p: float, source: Any) -> tuple[np.ndarray, np.ndarray]:
    """(out, mask): out = input / (1 - p) where the mask `source`, uint8 of the input's shape, is 1, else 0."""
    if isinstance(source, int):
        return NotImplemented
    out = dropout_backward(input, source, p)
    return NotImplemented if out is NotImplemented else (out, source)


def dropout_backward(g: np.ndarray, mask: np.ndarray, p: float) -> np.ndarray:
    """g / (1 - p) where `mask` is not 0, else 0: the gradient of `dropout` for its input."""
    if not compiled_for(g) or mask.dtype != np.uint8 or mask.shape != g.shape:
        return NotImplemented
    out, flat, vectors = beside(g.dtype, g, mask)
    _apply(*vectors, g.dtype.type(1 / (1 - p) if p < 1 else 0), flat)
    return out


@shared("x", "mask", "out")
@kernel
def _apply(x, mask, scale, out):
    zero = x.dtype.type(0)
    for i in range(x.size):
        out[i] = x[i] * scale if mask[i] != 0 else zero
