"""Distributions that are other ones after a transform."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, digamma, exp, lgamma, log, where
from . import constraints
from .gamma import Gamma
from .location_scale import EULER, Cauchy, Normal
from .rates import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform, StickBreakingTransform
from .uniform import Uniform
from .utils import broadcast_all, formula, same_as


class Folded(TransformedDistribution):
    """The absolute values of a distribution with a `scale` that is symmetric around 0, its peak."""

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, base_distribution: Any, validate_args: bool | None = None) -> None:
        super().__init__(base_distribution, AbsTransform(), validate_args=validate_args)

    scale = same_as("base_dist.scale")
    mode: Any = formula(lambda self: self.scale.new_zeros(self.scale.shape))

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


class HalfNormal(Folded):
    """The absolute values of Normal(0, scale)."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    mean: Any = formula(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance: Any = formula(lambda self: self.scale.pow(2) * (1 - 2 / math.pi))


class HalfCauchy(Folded):
    """The absolute values of Cauchy(0, scale)."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        """Infinite: the integral does not converge."""
        return self.scale.new_full(self._batch_shape, math.inf)

    variance: Any = same_as("base_dist.variance")


class LogNormal(TransformedDistribution):
    """Positive numbers whose logarithms are Normal(loc, scale)."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(
            Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args
        )

    loc = same_as("base_dist.loc")
    scale = same_as("base_dist.scale")
    mean: Any = formula(lambda self: (self.loc + self.scale.pow(2) / 2).exp())
    mode: Any = formula(lambda self: (self.loc - self.scale.square()).exp())

    @property
    def variance(self) -> Tensor:
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


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

    mode: Any = formula(lambda self: self.rate / (self.concentration + 1))

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1 + a) * digamma(a)


class Pareto(TransformedDistribution):
    """Numbers from `scale` on, whose tail falls as value**-alpha."""

    arg_constraints: ClassVar = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

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

    support: Any = constraints.dependent_property(_from_scale, is_discrete=False, event_dim=0)

    def entropy(self) -> Tensor:
        return log(self.scale / self.alpha) + (1 + self.alpha.reciprocal())


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

    def _log_moment(self, n: int) -> Tensor:
        """Of a Weibull distribution of scale 1."""
        return lgamma(1 + n * self.concentration_reciprocal)

    mean: Any = formula(lambda self: self.scale * exp(self._log_moment(1)))

    @property
    def mode(self) -> Tensor:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (exp(self._log_moment(2)) - exp(2 * self._log_moment(1)))

    def entropy(self) -> Tensor:
        inverse = self.concentration_reciprocal
        return EULER * (1 - inverse) + log(self.scale * inverse) + 1


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

    def _moment(self, n: int) -> Tensor:
        first, b = 1 + n / self.concentration1, self.concentration0
        return b * exp(lgamma(first) + lgamma(b) - lgamma(first + b))

    mean: Any = formula(lambda self: self._moment(1))

    @property
    def mode(self) -> Tensor:
        """nan where the density has no peak in between."""
        a, b = self.concentration1, self.concentration0
        peak = ((a - 1) / (a * b - 1)) ** a.reciprocal()
        return where((a < 1) | (b < 1) | (a * b == 1), math.nan, peak)

    variance: Any = formula(lambda self: self._moment(2) - self._moment(1).pow(2))

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * (digamma(b + 1) + EULER) - log(a) - log(b)
