"""The Pareto distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, log
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .utils import broadcast_all, same_as


class Pareto(TransformedDistribution):
    """Numbers from `scale` on, whose tail falls as value**-alpha."""

    arg_constraints: ClassVar = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Pareto(self.scale.expand(batch_shape), self.alpha.expand(batch_shape), validate_args=False)

    @property
    def mean(self) -> Tensor:
        alpha = self.alpha.clamp(min=1)  # from 1 on it is finite
        return alpha * self.scale / (alpha - 1)

    mode: Any = same_as("scale")

    @property
    def variance(self) -> Tensor:
        alpha = self.alpha.clamp(min=2)  # from 2 on it is finite
        return self.scale.pow(2) * alpha / ((alpha - 1).pow(2) * (alpha - 2))

    def _from_scale(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    support: Any = constraints.dependent_property(_from_scale)

    def entropy(self) -> Tensor:
        return log(self.scale / self.alpha) + (1 + self.alpha.reciprocal())
