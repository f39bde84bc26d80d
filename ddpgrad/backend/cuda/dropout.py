"""Dropout in CUDA kernels, with the mask that every device gets from the same seed.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011): key = seed, counter = position // 4, word = position % 4. An element is kept when its
word is at least p * 2**32.
"""

from __future__ import annotations

from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from .source import computes, contiguous, elementwise

Array = Any

# One thread per counter, which decides four elements.
_dropout = elementwise(
    "raw T input, int64 count, float64 scale, uint64 threshold, uint64 seed",
    "raw T out, raw uint8 mask",
    """
    const unsigned long long counter = i;
    unsigned int word[4] = {(unsigned int)counter, (unsigned int)(counter >> 32), 0u, 0u};
    unsigned int low_key = (unsigned int)seed, high_key = (unsigned int)(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const unsigned long long a = 0xD2511F53ull * word[0], b = 0xCD9E8D57ull * word[2];
      word[0] = (unsigned int)(b >> 32) ^ word[1] ^ low_key;
      word[1] = (unsigned int)b;
      word[2] = (unsigned int)(a >> 32) ^ word[3] ^ high_key;
      word[3] = (unsigned int)a;
      low_key += 0x9E3779B9u;
      high_key += 0xBB67AE85u;
    }
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
    threshold, key = np.uint64(round(p * 2**32)), np.uint64(seed % 2**64)
    _dropout(contiguous(input), input.size, _scale(p), threshold, key, out, mask, size=-(-input.size // 4))
    return out, mask


def dropout_backward(g: Array, mask: Array, p: float) -> Array:
    """g / (1 - p) where `mask` is not 0, else 0: the gradient of `dropout` for its input."""
    if not computes(g) or mask.dtype != np.uint8:
        return NotImplemented
    return _backward(g, mask, _scale(p))


def _scale(p: float) -> float:
    return 1 / (1 - p) if p < 1 else 0.0
