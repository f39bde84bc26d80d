"""The logistic-normal distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform
from .utils import same_as


class LogisticNormal(TransformedDistribution):
    """Probabilities of K + 1 categories, which break a stick at places whose log-odds are Normal(loc, scale) (..., K)."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    loc = same_as("base_dist.base_dist.loc")
    scale = same_as("base_dist.base_dist.scale")
