"""The Weibull distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, exp, lgamma, log
from . import constraints
from .exponential import Exponential
from .gumbel import EULER
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import broadcast_all


class Weibull(TransformedDistribution):
    """scale * e**(1 / concentration) of an e that is Exponential(1)."""

    arg_constraints: ClassVar = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(self.scale.new_ones(self.scale.shape), validate_args=validate_args)
        transforms = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Weibull(
            self.scale.expand(batch_shape), self.concentration.expand(batch_shape), validate_args=False
        )

    def _log_moment(self, n: int) -> Tensor:
        """Of a Weibull distribution of scale 1."""
        return lgamma(1 + n * self.concentration_reciprocal)

    @property
    def mean(self) -> Tensor:
        return self.scale * exp(self._log_moment(1))

    @property
    def mode(self) -> Tensor:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (exp(self._log_moment(2)) - exp(2 * self._log_moment(1)))

    def entropy(self) -> Tensor:
        inverse = self.concentration_reciprocal
        return EULER * (1 - inverse) + log(self.scale * inverse) + 1
