"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any

from ... import Tensor, exp, finfo, log
from .location_scale import LocationScale

EULER = 0.5772156649015328606


class Gumbel(LocationScale):
    """The Gumbel distribution: loc - scale * log(-log(u)) of a uniform u."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        limits = finfo(self.loc.dtype)
        unit = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(0, 1)
        unit = limits.tiny + unit * (1 - limits.eps - limits.tiny)  # in (0, 1): both logarithms are finite
        return self.loc - self.scale * log(-log(unit))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        y = (self.loc - value) / self.scale
        return y - exp(y) - log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return exp(-exp((self.loc - value) / self.scale))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * log(-log(value))

    def entropy(self) -> Tensor:
        return log(self.scale) + (1 + EULER)
