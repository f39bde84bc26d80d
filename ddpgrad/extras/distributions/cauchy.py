"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from ... import Tensor, atan, log, log1p, tan
from .location_scale import LocationScale


class Cauchy(LocationScale):
    """The Cauchy distribution with median `loc` and half width `scale` at half maximum."""

    @property
    def mean(self) -> Tensor:
        """nan: the integral does not converge."""
        return self.loc.new_full(self._batch_shape, math.nan)

    @property
    def variance(self) -> Tensor:
        return self.loc.new_full(self._batch_shape, math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -math.log(math.pi) - log(self.scale) - log1p(((value - self.loc) / self.scale) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + log(self.scale)
