"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

from ... import Tensor, abs, expm1, finfo, log, log1p, sign
from .location_scale import LocationScale
from .utils import same_as


class Laplace(LocationScale):
    """The Laplace distribution: exp(-|x - loc| / scale) / (2 scale)."""

    mean: Any = same_as("loc")

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        lowest = finfo(self.loc.dtype).eps - 1  # not -1, whose logarithm below would be infinite
        u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(lowest, 1)
        return self.loc - self.scale * sign(u) * log1p(-abs(u))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -log(2 * self.scale) - abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * sign(away) * expm1(-abs(away) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        centred = value - 0.5
        return self.loc - self.scale * sign(centred) * log1p(-2 * abs(centred))

    def entropy(self) -> Tensor:
        return 1 + log(2 * self.scale)
