"""Draws of which only the shape and the dtype are made: those of tensors on meta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend.meta.array import MetaArray
from .variates import shape_tuple

Shape = int | Sequence[int]


class Shapes:
    """What makes, in place of the draws of a generator, arrays on meta of their shapes and dtypes.

    The methods that take a shape first are the generator's own: asked for no numbers, they draw none, say the
    dtype, and refuse wrong arguments.
    """

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Callable[..., MetaArray]:
        draw = getattr(self._source, name)

        def shaped(shape: Shape, *args: Any, **options: Any) -> MetaArray:
            return MetaArray(shape_tuple(shape), draw(0, *args, **options).dtype)

        return shaped

    def integers(self, low: int, high: int, shape: Shape) -> MetaArray:
        """As `Generator.integers`."""
        return MetaArray(shape_tuple(shape), self._source.integers(low, high, 0).dtype)

    def permutation(self, n: int) -> MetaArray:
        """As `Generator.permutation`."""
        return MetaArray((n,), np.int64)

    def bernoulli(self, p: Any, shape: Shape | None = None) -> MetaArray:
        """As `Generator.bernoulli`."""
        return MetaArray(p.shape if shape is None else shape_tuple(shape), np.bool_)

    def poisson(self, rates: Any) -> MetaArray:
        """As `Generator.poisson` and `Generator.standard_gamma`."""
        return MetaArray(rates.shape, np.float64)

    standard_gamma = poisson

    def binomial(self, counts: Any, probabilities: Any) -> MetaArray:
        """As `Generator.binomial`."""
        return MetaArray(np.broadcast_shapes(counts.shape, probabilities.shape), np.float64)

    def multinomial(self, weights: Any, num_samples: int, replacement: bool = False) -> MetaArray:
        """As `Generator.multinomial`."""
        if num_samples < 1:
            raise RuntimeError(f"cannot sample n_sample <= 0 samples: num_samples is {num_samples}")
        return MetaArray((*weights.shape[:-1], num_samples), np.int64)
