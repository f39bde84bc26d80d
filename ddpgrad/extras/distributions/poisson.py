"""The Poisson distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ...autograd import no_grad
from ...core.tensor import Tensor
from ...ops.creation.draws import poisson
from ...ops.elementwise.special import lgamma, xlogy
from ...ops.elementwise.unary import floor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all


class Poisson(Distribution):
    """Counts of events that happen `rate` times on average."""

    arg_constraints: ClassVar = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return floor(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return xlogy(value, rate) - rate - lgamma(value + 1)
