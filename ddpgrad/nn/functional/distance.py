"""Distances and angles between vectors, and normalisation to length 1."""

from __future__ import annotations

from typing import Any

from ... import Tensor, broadcast_tensors, clamp, norm, promote_types
from ...ops.dispatch.out import write_out


def normalize(
    input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """`input` divided by its p-norm over `dim`, or by `eps` where the norm is smaller."""
    scaled = input / clamp(norm(input, p, dim, keepdim=True), min=eps)
    return scaled if out is None else write_out("normalize", out, scaled, (input,))


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; lengths below `eps` count as `eps`."""
    x1, x2 = broadcast_tensors(x1, x2)
    if x1.dtype is not x2.dtype:
        common = promote_types(x1.dtype, x2.dtype)
        x1, x2 = x1.to(common), x2.to(common)
    lengths = [clamp(norm(x, 2, dim, True), min=eps) for x in (x1, x2)]
    return (x1 / lengths[0] * (x2 / lengths[1])).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension."""
    return norm(x1 - x2 + eps, p, -1, keepdim)
