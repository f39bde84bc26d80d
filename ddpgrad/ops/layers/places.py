"""Gather from, and scatter-add to, positions of flattened images: each op is the other's gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import Sample, op


def _raw(index: Any) -> Any:
    return index._array if isinstance(index, Tensor) else index


def _samples(rng: Any) -> Iterable[Sample]:
    yield (rng.standard_normal((2, 3, 5)), np.array([[0, 4, 4, 1], [3, 3, 3, 2]])), {}
    yield (rng.standard_normal((1, 2, 4)), np.array([[2]])), {}


@op(
    grads={"input": lambda F, g, index, input_shape: F.add_places(g, index, input_shape[2])},
    adapt=lambda input, index: (input, _raw(index)),
    samples=_samples,
    reference=lambda x, i: np.stack([image[:, at] for image, at in zip(x, i, strict=True)]),
    method=False,
)
def take_places(F: Any, input: Tensor, index: Any) -> Tensor:
    """`input` (N, C, S) at the places `index` (N, P), the same for all channels: (N, C, P)."""
    shape = (input.shape[0], input.shape[1], index.shape[1])
    return F.gather(input, 2, F.expand(index[:, None], shape))


def _reference(g: Any, index: Any, size: int) -> Any:
    out = np.zeros((*g.shape[:2], size))
    for n, c, p in np.ndindex(*g.shape):
        out[n, c, index[n, p]] += g[n, c, p]
    return out


@op(
    grads={"g": lambda F, g, index: F.take_places(g, index)},
    adapt=lambda g, index, size: (g, _raw(index), size),
    samples=lambda rng: [((rng.standard_normal((2, 3, 4)), np.array([[0, 4, 4, 1], [3, 3, 3, 2]]), 5), {})],
    reference=_reference,
    method=False,
)
def add_places(F: Any, g: Tensor, index: Any, size: int) -> Tensor:
    """Zeros (N, C, size) with `g` (N, C, P) added at the places `index` (N, P), the same for all channels."""
    zeros = F.new_zeros(g, (*g.shape[:2], size))
    return F.scatter_add(zeros, 2, F.expand(index[:, None], tuple(g.shape)), g)
