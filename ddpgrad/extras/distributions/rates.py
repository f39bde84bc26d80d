"""Events at a constant rate: the time to the next one, and how many there are."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, exp, floor, lgamma, log, log1p, no_grad, poisson, xlogy
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, formula, same_as


class Exponential(ExponentialFamily):
    """The exponential distribution with mean 1 / `rate`."""

    arg_constraints: ClassVar = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean: Any = formula(lambda self: self.rate.reciprocal())
    mode: Any = formula(lambda self: self.rate.new_zeros(self.rate.shape))
    stddev: Any = formula(lambda self: self.rate.reciprocal())
    variance: Any = formula(lambda self: self.rate.pow(-2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return 1 - exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - log(self.rate)

    _mean_carrier_measure: Any = 0

    _natural_params: Any = formula(lambda self: (-self.rate,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -log(-x)


class Poisson(ExponentialFamily):
    """Counts of events that happen `rate` times on average."""

    arg_constraints: ClassVar = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean: Any = same_as("rate")
    mode: Any = formula(lambda self: floor(self.rate))
    variance: Any = same_as("rate")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return xlogy(value, rate) - rate - lgamma(value + 1)

    _natural_params: Any = formula(lambda self: (log(self.rate),))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return exp(x)
