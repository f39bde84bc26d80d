"""Dropout in CUDA kernels, with the mask that every device gets from the same seed.

Of the generator (`philox.py`): key = seed, counter = position // 4, word = position % 4. An element is kept when
its word is at least p * 2**32.
"""

from __future__ import annotations

from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from .philox import PHILOX, place_of
from .source import computes, contiguous, elementwise

Array = Any

# One thread per counter, which decides four elements.
_dropout = elementwise(
    "raw T input, int64 count, float64 scale, uint64 threshold, uint64 seed, bool there",
    "raw T out, raw uint8 mask",
    """
    unsigned int word[4];
    philox(i, seed, there, word);
    for (int k = 0; k < 4; ++k) {
      const long long place = 4 * i + k;
      if (place < count) {
        const bool kept = word[k] >= threshold;
        mask[place] = kept;
        out[place] = kept ? (T)((A)input[place] * (A)scale) : (T)(A)0;
      }
    }
    """,
    "dropout",
    PHILOX,
)
_backward = elementwise(
    "T g, uint8 mask, float64 scale",
    "T out",
    "out = mask ? (T)((A)g * (A)scale) : (T)(A)0;",
    "dropout_backward",
)


def dropout(input: Array, p: float, seed: int) -> tuple[Array, Array]:
    """(out, mask): mask uint8 of the input's shape, 0 with probability p; out = input / (1 - p) where mask is 1."""
    if not computes(input):
        return NotImplemented
    out, mask = cupy.empty(input.shape, input.dtype), cupy.empty(input.shape, np.uint8)
    threshold, key = np.uint64(round(p * 2**32)), place_of(seed)
    _dropout(contiguous(input), input.size, _scale(p), threshold, *key, out, mask, size=-(-input.size // 4))
    return out, mask


def dropout_backward(g: Array, mask: Array, p: float) -> Array:
    """g / (1 - p) where `mask` is not 0, else 0: the gradient of `dropout` for its input."""
    if not computes(g) or mask.dtype != np.uint8:
        return NotImplemented
    return _backward(g, mask, _scale(p))


def _scale(p: float) -> float:
    return 1 / (1 - p) if p < 1 else 0.0
