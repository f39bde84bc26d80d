"""Distributions on all real numbers that are moved by `loc` and stretched by `scale`."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, abs, atan, erf, erfinv, exp, expm1, finfo, log, log1p, no_grad, normal, sign, tan
from . import constraints
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .utils import broadcast_all, formula, same_as, standard_normal

EULER = 0.5772156649015328606
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class LocationScale(Distribution):
    """Keeps `loc` and `scale`, in one shape; `loc` is the peak."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    mode: Any = same_as("loc")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)


class Normal(LocationScale, ExponentialFamily):
    """The normal distribution with mean `loc` and standard deviation `scale`."""

    mean: Any = same_as("loc")
    mode: Any = same_as("loc")
    stddev: Any = same_as("scale")
    variance: Any = formula(lambda self: self.scale.pow(2))

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

    _mean_carrier_measure: Any = 0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        precision = self.scale.pow(-2)
        return self.loc * precision, -0.5 * precision

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return -0.25 * x.pow(2) / y + 0.5 * log(-math.pi / y)


class Laplace(LocationScale):
    """The Laplace distribution: exp(-|x - loc| / scale) / (2 scale)."""

    mean: Any = same_as("loc")
    variance: Any = formula(lambda self: 2 * self.scale.pow(2))
    stddev: Any = formula(lambda self: 2**0.5 * self.scale)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        lowest = finfo(self.loc.dtype).eps - 1  # not -1, whose logarithm below would be infinite
        u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(lowest, 1)
        return self.loc - self.scale * sign(u) * log1p(-abs(u))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -log(2 * self.scale) - abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * sign(away) * expm1(-abs(away) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        centred = value - 0.5
        return self.loc - self.scale * sign(centred) * log1p(-2 * abs(centred))

    def entropy(self) -> Tensor:
        return 1 + log(2 * self.scale)


class Cauchy(LocationScale):
    """The Cauchy distribution with median `loc` and half width `scale` at half maximum."""

    @property
    def mean(self) -> Tensor:
        """nan: the integral does not converge."""
        return self.loc.new_full(self._batch_shape, math.nan)

    variance: Any = formula(lambda self: self.loc.new_full(self._batch_shape, math.inf))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return -math.log(math.pi) - log(self.scale) - log1p(((value - self.loc) / self.scale) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + log(self.scale)


class Gumbel(LocationScale):
    """The Gumbel distribution: loc - scale * log(-log(u)) of a uniform u."""

    mean: Any = formula(lambda self: self.loc + self.scale * EULER)
    stddev: Any = formula(lambda self: math.pi / math.sqrt(6) * self.scale)
    variance: Any = formula(lambda self: self.stddev.pow(2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        limits = finfo(self.loc.dtype)
        unit = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(0, 1)
        unit = limits.tiny + unit * (1 - limits.eps - limits.tiny)  # in (0, 1): both logarithms are finite
        return self.loc - self.scale * log(-log(unit))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        y = (self.loc - value) / self.scale
        return y - exp(y) - log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return exp(-exp((self.loc - value) / self.scale))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * log(-log(value))

    def entropy(self) -> Tensor:
        return log(self.scale) + (1 + EULER)
