"""The base of folded distributions: absolute values of draws from a symmetric one."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, where
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform
from .utils import same_as


class Folded(TransformedDistribution):
    """The absolute values of a distribution with a `scale` that is symmetric around 0, its peak."""

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, base_distribution: Any, validate_args: bool | None = None) -> None:
        super().__init__(base_distribution, AbsTransform(), validate_args=validate_args)

    scale = same_as("base_dist.scale")

    @property
    def mode(self) -> Tensor:
        return self.scale.new_zeros(self.scale.shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
