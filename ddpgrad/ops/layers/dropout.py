"""Dropout: on a CPU with the numbers that PyTorch draws, on a GPU by a counter-based generator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend.elementary.shape import inverse, memory_order
from ...backend.registry import backend_for
from ...core.taping import taped
from ...core.tensor import Tensor
from ...random import gpu_key, rank_generator
from ..dispatch.declare import op
from ..dispatch.vocabulary import VOCABULARY as F
from ..indexing.setitem import copy_


def _adapt(input: Tensor, p: float = 0.5, source: Any = None) -> tuple[Any, ...]:
    if source is None:
        generator = rank_generator()
        kind = backend_for(input._array).kind
        if kind != "cpu":
            source = gpu_key(generator) if kind == "cuda" else 0
        elif p == 1:
            source = np.zeros(input.shape, np.uint8)  # nothing is drawn, as in PyTorch
        else:
            source = _drawn(input._array, 1 - p)
    return input, float(p), source


@taped
def _drawn(array: np.ndarray, keep: float) -> np.ndarray:
    """A uint8 array like `array`, 1 with probability `keep`, drawn in order of memory if it is a dense permutation."""
    generator = rank_generator()
    if not array.flags.c_contiguous:
        order = memory_order(array)
        if array.transpose(order).flags.c_contiguous:
            mask = generator.bernoulli(keep, tuple(array.shape[axis] for axis in order))
            return mask.view(np.uint8).transpose(inverse(order))
    return generator.bernoulli(keep, array.shape).view(np.uint8)


def skipped(p: float, training: bool) -> bool:
    """Whether nothing is dropped; `ValueError` when `p` is no probability."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return not training or p == 0.0


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, elements zeroed with probability `p` and the others scaled by 1 / (1 - p)."""
    if skipped(p, training):
        return input
    if input.dtype.category < 2:
        raise RuntimeError(
            f"dropout(): result type Float can't be cast to the desired output type {input.dtype.name}"
        )
    out = F.dropout(input, p)
    return copy_(input, out) if inplace else out


@op(
    public=_dropout,
    grads={"input": lambda F, g, p, mask: F.dropout_backward(g, mask, p)},
    extras=("mask",),
    adapt=_adapt,
    samples=lambda rng: [((rng.standard_normal((3, 4)), 0.0, 1), {})],
    reference=lambda x, p, source: x,
    method=False,
    grad_name="NativeDropoutBackward0",
)
def dropout(F: Any, input: Tensor, p: float = 0.5, source: Any = None) -> Tensor:
    """`input` with elements zeroed with probability `p`, the others scaled by 1 / (1 - p).

    source: the mask, uint8 of the input's shape with 1 for what stays, or a 64-bit key to
    compute it from. By default a mask drawn from this rank's generator on a CPU, as PyTorch
    draws it, and one draw of it as a key on a GPU.
    """
    if isinstance(source, int):
        words = philox(np.arange(-(-math.prod(input.shape) // 4)), source)
        keep = words.reshape(-1)[: math.prod(input.shape)] >= np.uint64(round(p * 2**32))
        source = F.reshape(F.asarray(keep.astype(np.uint8)), tuple(input.shape))
    return F.dropout_backward(input, source, p), source  # type: ignore[return-value]


@op(grads={"g": lambda F, g, mask, p: F.dropout_backward(g, mask, p)}, method=False)
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
