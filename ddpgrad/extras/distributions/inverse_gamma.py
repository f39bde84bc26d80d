"""The inverse gamma distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, digamma, lgamma, log, where
from . import constraints
from .gamma import Gamma
from .transformed_distribution import TransformedDistribution
from .transforms import PowerTransform
from .utils import same_as


class InverseGamma(TransformedDistribution):
    """The reciprocals of Gamma(concentration, rate)."""

    arg_constraints: ClassVar = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        minus_one = base.rate.detach().new_tensor(-1.0)
        super().__init__(base, PowerTransform(minus_one), validate_args=validate_args)

    concentration = same_as("base_dist.concentration")
    rate = same_as("base_dist.rate")

    @property
    def mean(self) -> Tensor:
        return where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1 + a) * digamma(a)
