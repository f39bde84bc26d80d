"""Functions on vectors that are neither layers nor losses: padding, one-hot codes, norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._tensor import Tensor
from ...backend import dtype as dtypes
from ...ops.composed import norm
from ...ops.creation import arange
from ...ops.elementwise import clamp
from ...ops.reduce import euclidean_norm
from ...ops.reduce import sum as sum_over
from ...ops.shape import constant_pad


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`input` with elements of `value` (0) around it; negative widths cut.

    pad: (before, after) of the last dimension, then of the one before it, and so on.
    """
    if mode != "constant":
        raise NotImplementedError(f"pad(): mode {mode!r} is not supported; expected 'constant'")
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise RuntimeError(
            f"pad(): expected an even number of widths, at most {2 * input.ndim} for a {input.ndim}D input, got "
            f"{len(pad)}"
        )
    widths = [(0, 0)] * (input.ndim - len(pad) // 2)
    widths += [(int(pad[i]), int(pad[i + 1])) for i in range(len(pad) - 2, -1, -2)]
    inner = [
        slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(input.shape, widths, strict=True)
    ]
    if any(low < 0 or high < 0 for low, high in widths):
        for n, (low, high) in zip(input.shape, widths, strict=True):
            if n + low + high < 0:
                raise RuntimeError(f"pad(): widths ({low}, {high}) cut more than a dimension of size {n} has")
        input = input[tuple(inner)]
    outer = [(max(low, 0), max(high, 0)) for low, high in widths]
    return (
        constant_pad(input, tuple(outer), 0.0 if value is None else value) if any(map(any, outer)) else input
    )


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 (*, num_classes): 1 at the index that `tensor` (*) holds, 0 elsewhere; -1: as many as occur."""
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type int64, got {tensor.dtype!r}")
    if num_classes < 0:
        if not tensor.numel():
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(tensor.max()) + 1
    if tensor.numel() and not tensor.is_cuda:
        low, high = int(tensor.min()), int(tensor.max())
        if low < 0 or high >= num_classes:
            raise RuntimeError(f"Class values must be in [0, {num_classes}), got values from {low} to {high}")
    return (tensor.unsqueeze(-1) == arange(num_classes, device=tensor.device)).to(dtypes.int64)


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """`input` divided by its p-norm over `dim`, or by `eps` where the norm is smaller."""
    return input / clamp(norm(input, p, dim, keepdim=True), min=eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; lengths below `eps` count as `eps`."""
    lengths = [clamp(euclidean_norm(x, dim, True), min=eps) for x in (x1, x2)]
    return sum_over(x1 / lengths[0] * (x2 / lengths[1]), dim)
