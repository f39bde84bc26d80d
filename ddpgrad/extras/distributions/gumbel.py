"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...backend.dtype import finfo
from ...core.tensor import Tensor
from ...ops.elementwise.unary import exp, log
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

EULER = 0.5772156649015328606


class Gumbel(Distribution):
    """The Gumbel distribution: loc - scale * log(-log(u)) of a uniform u."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

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
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - exp(y) - log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return exp(-exp((self.loc - value) / self.scale))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * log(-log(value))

    def entropy(self) -> Tensor:
        return log(self.scale) + (1 + EULER)
