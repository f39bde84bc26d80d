"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

from ... import Tensor, erf, erfinv, log, no_grad, normal
from .location_scale import LocationScale
from .utils import same_as, standard_normal

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Normal(LocationScale):
    """The normal distribution with mean `loc` and standard deviation `scale`."""

    mean: Any = same_as("loc")
    stddev: Any = same_as("scale")

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + standard_normal(self._extended_shape(sample_shape), self.loc) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -((value - self.loc) ** 2) / (2 * self.variance) - log(self.scale) - _HALF_LOG_TWO_PI

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return 0.5 * (1 + erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + _HALF_LOG_TWO_PI + log(self.scale)
