"""Compiled dropout for the CPU, with a mask that depends on a 64-bit seed and the element's position only.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011): key = seed, counter = position // 4, word = position % 4. An element is kept when its
word is at least p * 2**32. Every device that computes this gets the same mask.
"""

from __future__ import annotations

import math

import numpy as np

from .vectormath import compiled_for, kernel

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEP_0, _STEP_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
# Counters per block: its words stay in the first level of cache.
_COUNTERS = 512


def dropout(input: np.ndarray, p: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(out, mask): mask uint8 of the input's shape, 0 with probability p; out = input / (1 - p) where mask is 1."""
    if not compiled_for(input):
        return NotImplemented
    mask = bernoulli_mask(input.shape, p, seed)
    return dropout_backward(input, mask, p), mask


def dropout_backward(g: np.ndarray, mask: np.ndarray, p: float) -> np.ndarray:
    """g / (1 - p) where `mask` is not 0, else 0: the gradient of `dropout` for its input."""
    if not compiled_for(g) or mask.dtype != np.uint8 or mask.shape != g.shape:
        return NotImplemented
    out = np.empty(g.shape, g.dtype)
    scale = g.dtype.type(1 / (1 - p) if p < 1 else 0)
    _apply(
        np.ascontiguousarray(g).reshape(-1), np.ascontiguousarray(mask).reshape(-1), scale, out.reshape(-1)
    )
    return out


def bernoulli_mask(shape: tuple[int, ...], p: float, seed: int) -> np.ndarray:
    """uint8 array of `shape`: 0 with probability p, 1 otherwise, the same for the same seed (64 bits)."""
    mask = np.empty(math.prod(shape), np.uint8)
    low, high = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)
    _fill_mask(low, high, np.uint64(round(p * 2**32)), mask)
    return mask.reshape(shape)


@kernel
def _fill_mask(seed_low, seed_high, threshold, mask):
    size = mask.size
    kept = np.empty(4 * _COUNTERS, np.uint8)
    for start in range(0, size, 4 * _COUNTERS):
        for i in range(_COUNTERS):
            counter = np.uint64(start // 4 + i)
            x0, x1, x2, x3 = counter & _LOW, counter >> _HALF, np.uint64(0), np.uint64(0)
            k0, k1 = seed_low, seed_high
            for _ in range(10):
                a, b = _MULTIPLIER_0 * x0, _MULTIPLIER_1 * x2
                x0, x1, x2, x3 = (b >> _HALF) ^ x1 ^ k0, b & _LOW, (a >> _HALF) ^ x3 ^ k1, a & _LOW
                k0 = (k0 + _STEP_0) & _LOW
                k1 = (k1 + _STEP_1) & _LOW
            kept[4 * i] = x0 >= threshold
            kept[4 * i + 1] = x1 >= threshold
            kept[4 * i + 2] = x2 >= threshold
            kept[4 * i + 3] = x3 >= threshold
        for i in range(min(4 * _COUNTERS, size - start)):
            mask[start + i] = kept[i]


@kernel
def _apply(x, mask, scale, out):
    zero = x.dtype.type(0)
    for i in range(x.size):
        out[i] = x[i] * scale if mask[i] != 0 else zero
