"""Dropout by a counter-based generator: the mask depends on a key and the position only."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from ..random import default_generator
from .declare import op


def _adapt(input: Tensor, p: float = 0.5, seed: int | None = None) -> tuple[Any, ...]:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return input, float(p), default_generator().raw64() if seed is None else seed


@op(
    grads={"input": lambda F, g, p, mask: F.dropout_backward(g, mask, p)},
    extras=("mask",),
    adapt=_adapt,
    samples=lambda rng: [((rng.standard_normal((3, 4)), 0.0, 1), {})],
    reference=lambda x, p, seed: x,
    method=False,
    grad_name="NativeDropoutBackward0",
)
def dropout(F: Any, input: Tensor, p: float = 0.5, seed: int | None = None) -> Tensor:
    """`input` with elements zeroed with probability `p`, the others scaled by 1 / (1 - p).

    seed: the 64-bit key of the mask; by default one draw of this rank's generator.
    """
    size = 1
    for n in input.shape:
        size *= n
    words = philox(np.arange(-(-size // 4)), seed or 0).reshape(-1)[:size]
    keep = words >= np.uint64(round(p * 2**32))
    mask = F.reshape(F.asarray(keep.astype(np.uint8)), tuple(input.shape))
    return F.dropout_backward(input, mask, p), mask  # type: ignore[return-value]


@op(
    grads={"g": lambda F, g, mask, p: F.dropout_backward(g, mask, p)},
    method=False,
)
def dropout_backward(F: Any, g: Tensor, mask: Any, p: float) -> Tensor:
    """The gradient let through where `mask` is set."""
    mask = mask._array if isinstance(mask, Tensor) else mask
    return F.where(mask != 0, g * (1 / (1 - p) if p < 1 else 0.0), F.full_like(g, 0))


_PHILOX_M = (0xD2511F53, 0xCD9E8D57)
_PHILOX_W = (0x9E3779B9, 0xBB67AE85)


def philox(counters: np.ndarray, seed: int) -> np.ndarray:
    """Philox4x32-10 (Salmon et al., 2011): (n, 4) words from `n` 64-bit counters and a 64-bit key."""
    low = np.uint64(0xFFFFFFFF)
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)
    c = counters.astype(np.uint64)
    x0, x1 = c & low, c >> np.uint64(32)
    x2 = x3 = np.zeros_like(x0)
    for _ in range(10):
        p0, p1 = x0 * np.uint64(_PHILOX_M[0]), x2 * np.uint64(_PHILOX_M[1])
        x0, x1, x2, x3 = (p1 >> np.uint64(32)) ^ x1 ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ x3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(_PHILOX_W[0])) & low, (k1 + np.uint64(_PHILOX_W[1])) & low
    return np.stack([x0, x1, x2, x3], axis=1)
