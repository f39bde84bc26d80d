"""The Poisson distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, floor, lgamma, no_grad, poisson, xlogy
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, same_as


class Poisson(Distribution):
    """Counts of events that happen `rate` times on average."""

    arg_constraints: ClassVar = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean: Any = same_as("rate")

    @property
    def mode(self) -> Tensor:
        return floor(self.rate)

    variance: Any = same_as("rate")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return xlogy(value, rate) - rate - lgamma(value + 1)
