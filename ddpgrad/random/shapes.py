"""Draws of which only the shape and the dtype are made: those of tensors on meta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.meta.array import MetaArray
from .variates import shape_tuple

Shape = int | Sequence[int]


class Shapes:
    """A `Generator` that draws nothing: its methods return arrays on meta, of the shapes and dtypes of draws."""

    def uniform(
        self, shape: Shape, dtype: Any = np.float32, *bounds: float, in_blocks: bool = True
    ) -> MetaArray:
        """As `Generator.uniform`."""
        return MetaArray(shape_tuple(shape), dtype)

    normal = exponential = cauchy = log_normal = uniform

    def integers(self, low: int, high: int, shape: Shape, dtype: Any = np.int64) -> MetaArray:
        """As `Generator.integers`."""
        return MetaArray(shape_tuple(shape), dtype)

    def whole(self, shape: Shape, dtype: Any) -> MetaArray:
        """As `Generator.whole`."""
        return MetaArray(shape_tuple(shape), np.int64)

    def permutation(self, n: int) -> MetaArray:
        """As `Generator.permutation`."""
        return MetaArray((n,), np.int64)

    def bernoulli(self, p: Any, shape: Shape | None = None) -> MetaArray:
        """As `Generator.bernoulli`."""
        return MetaArray(p.shape if shape is None else shape_tuple(shape), np.bool_)

    def geometric(self, shape: Shape, p: float) -> MetaArray:
        """As `Generator.geometric`."""
        return MetaArray(shape_tuple(shape), np.float64)

    def poisson(self, rates: Any) -> MetaArray:
        """As `Generator.poisson` and `Generator.standard_gamma`."""
        return MetaArray(rates.shape, np.float64)

    standard_gamma = poisson

    def binomial(self, counts: Any, probabilities: Any) -> MetaArray:
        """As `Generator.binomial`."""
        return MetaArray(np.broadcast_shapes(counts.shape, probabilities.shape), np.float64)

    def multinomial(self, weights: Any, num_samples: int, replacement: bool = False) -> MetaArray:
        """As `Generator.multinomial`."""
        return MetaArray((*weights.shape[:-1], num_samples), np.int64)
