"""Gather from, and scatter-add to, positions of flattened images: each op is the other's gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import Sample, composite, op


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


def _mixed(x: Any, weight: Any, index: Any) -> Any:
    parts = [image[:, at] * w for image, w, at in zip(x, weight, index, strict=True)]
    return np.stack([part.sum(1) for part in parts])


@op(
    grads={
        "input": lambda F, g, weight, index, input_shape: F.mix_places_input_backward(
            g, weight, index, input_shape[2]
        ),
        "weight": lambda F, g, input, index: F.mix_places_weight_backward(g, input, index),
    },
    adapt=lambda input, weight, index: (input, weight, _raw(index)),
    samples=lambda rng: [
        (
            (
                rng.standard_normal((2, 3, 5)),
                rng.standard_normal((2, 2, 4)),
                np.array([[[0, 4, 4, 1], [3, 3, 3, 2]], [[0, 1, 2, 3], [4, 4, 0, 0]]]),
            ),
            {},
        ),
        ((rng.standard_normal((1, 2, 4)), rng.standard_normal((1, 1, 1)), np.array([[[2]]])), {}),
    ],
    reference=_mixed,
    method=False,
)
def mix_places(F: Any, input: Tensor, weight: Tensor, index: Any) -> Tensor:
    """`input` (N, C, S) at the places `index` (N, K, P), the same for all channels, times `weight`, summed over K: (N, C, P)."""
    out: Any = None
    for k in range(index.shape[1]):
        part = F.take_places(input, index[:, k]) * weight[:, k][:, None]
        out = part if out is None else out + part
    return out


@composite
def mix_places_input_backward(F: Any, g: Any, weight: Any, index: Any, size: int) -> Any:
    """The gradient of `mix_places` for its input, of `size` places."""
    out = None
    for k in range(index.shape[1]):
        part = F.add_places(g * weight[:, k][:, None], index[:, k], size)
        out = part if out is None else out + part
    return out


@composite
def mix_places_weight_backward(F: Any, g: Any, input: Any, index: Any) -> Any:
    """The gradient of `mix_places` for its weight."""
    return F.stack([F.sum(g * F.take_places(input, index[:, k]), 1) for k in range(index.shape[1])], 1)
