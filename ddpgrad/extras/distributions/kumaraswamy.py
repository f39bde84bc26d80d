"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, digamma, exp, lgamma, log, where
from . import constraints
from .gumbel import EULER
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all


class Kumaraswamy(TransformedDistribution):
    """Numbers in (0, 1) much like Beta(a, b), with a distribution function in closed form: 1 - (1 - x**a)**b.

    a is concentration1, b concentration0.
    """

    arg_constraints: ClassVar = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        zeros = self.concentration0.new_zeros(self.concentration0.shape)
        super().__init__(
            Uniform(zeros, zeros + 1, validate_args=validate_args),
            [
                PowerTransform(self.concentration0.reciprocal()),
                AffineTransform(1.0, -1.0),
                PowerTransform(self.concentration1.reciprocal()),
            ],
            validate_args=validate_args,
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        a, b = self.concentration1.expand(batch_shape), self.concentration0.expand(batch_shape)
        return Kumaraswamy(a, b, validate_args=False)

    def _moment(self, n: int) -> Tensor:
        first, b = 1 + n / self.concentration1, self.concentration0
        return b * exp(lgamma(first) + lgamma(b) - lgamma(first + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """nan where the density has no peak in between."""
        a, b = self.concentration1, self.concentration0
        peak = ((a - 1) / (a * b - 1)) ** a.reciprocal()
        return where((a < 1) | (b < 1) | (a * b == 1), math.nan, peak)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1).pow(2)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * (digamma(b + 1) + EULER) - log(a) - log(b)
