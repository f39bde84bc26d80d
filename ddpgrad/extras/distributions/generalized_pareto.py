"""The generalized Pareto distribution, of what lies above a high threshold."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, exp, isclose, log, log1p, rand, where, zeros_like
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, same_as

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Numbers from `loc` on with P(x > loc + scale * z) = (1 + k z)**(-1 / k), k = `concentration`; exp(-z) for k = 0.

    For k < 0 they end at loc - scale / k. Source: Hosking and Wallis, Technometrics 29 (1987).
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    mode: Any = same_as("loc")

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        k = self.concentration
        end = where(k < 0, self.loc - self.scale / where(k < 0, k, -1.0), math.inf)
        return constraints.interval(self.loc, end)

    @property
    def mean(self) -> Tensor:
        """nan, as in PyTorch, from k = 1 on, where it is infinite."""
        k = self.concentration
        return where(k < 1, self.loc + self.scale / (1 - where(k < 1, k, 0.0)), math.nan)

    @property
    def variance(self) -> Tensor:
        """nan, as in PyTorch, from k = 1/2 on, where it is infinite."""
        k = self.concentration
        inside = where(k < 0.5, k, 0.0)
        return where(k < 0.5, self.scale.pow(2) / ((1 - inside).pow(2) * (1 - 2 * inside)), math.nan)

    def _shape(self) -> tuple[Tensor, Tensor]:
        """Where k is so small that 1 / k loses digits, and k with 1 in place of these."""
        near = isclose(self.concentration, zeros_like(self.concentration))
        return near, where(near, 1.0, self.concentration)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log P(x > value)."""
        self._check_sample(value)
        z, (near, k) = (value - self.loc) / self.scale, self._shape()
        return where(near, -z, -log1p(k * z) / k)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log P(x <= value)."""
        return log1p(-exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        above = log1p(-value)
        near, k = self._shape()
        return self.loc + self.scale * where(near, -above, (-k * above).expm1() / k)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        z, (near, k) = (value - self.loc) / self.scale, self._shape()
        return where(near, -z, -(1 + 1 / k) * log1p(k * z)) - log(self.scale)

    def entropy(self) -> Tensor:
        return log(self.scale) + self.concentration + 1
