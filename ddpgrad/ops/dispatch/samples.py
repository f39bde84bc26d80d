"""Sample inputs that several ops share. Each takes a NumPy generator and yields (args, kwargs)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .declare import Sample

Rng = np.random.Generator


def one(low: float = -2.0, high: float = 2.0) -> Callable[[Rng], Iterable[Sample]]:
    """One array with elements in [low, high), in a few shapes."""

    def samples(rng: Rng) -> Iterable[Sample]:
        for shape in ((), (3,), (2, 3), (2, 1, 3)):
            yield (rng.uniform(low, high, shape),), {}

    return samples


def two(low: float = -2.0, high: float = 2.0) -> Callable[[Rng], Iterable[Sample]]:
    """Two arrays that broadcast, and an array with a number."""

    def samples(rng: Rng) -> Iterable[Sample]:
        for a, b in (((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 2)), ((2, 3), ())):
            yield (rng.uniform(low, high, a), rng.uniform(low, high, b)), {}
        yield (rng.uniform(low, high, (2, 3)), 1.5), {}

    return samples


def tensors(rng: Rng) -> Iterable[Sample]:
    """Two arrays that broadcast, and no number beside an array."""
    return list(two()(rng))[:-1]


def reductions(rng: Rng) -> Iterable[Sample]:
    """An array reduced over all, one and several dimensions."""
    x = rng.permutation(24).reshape(2, 3, 4) / 7.0 + 0.1  # no ties, so that extrema have one place
    yield (x,), {}
    yield (x, 1), {}
    yield (x, -1), {"keepdim": True}
    yield (x, (0, 2)), {}
    yield (x, (0, -1)), {"keepdim": True}


def along(rng: Rng) -> Iterable[Sample]:
    """An array and one dimension."""
    x = rng.permutation(24).reshape(2, 3, 4) / 7.0 + 0.1
    yield (x, 0), {}
    yield (x, 1), {}
    yield (x, -1), {}


def calls(
    *arguments: tuple[Any, ...], shape: tuple[int, ...] = (2, 3, 4)
) -> Callable[[Rng], Iterable[Sample]]:
    """One array of `shape`, followed by each of `arguments` in turn."""

    def samples(rng: Rng) -> Iterable[Sample]:
        for rest in arguments:
            yield (rng.standard_normal(shape), *rest), {}

    return samples
