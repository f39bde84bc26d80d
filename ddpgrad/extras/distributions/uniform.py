"""The uniform distribution on an interval."""

from __future__ import annotations

from typing import Any

from ... import Tensor, log, rand
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, formula


class Uniform(Distribution):
    """The uniform distribution on [low, high)."""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def arg_constraints(self) -> Any:
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    mean: Any = formula(lambda self: (self.high + self.low) / 2)

    @property
    def mode(self) -> Tensor:
        return self.high * float("nan")  # every value is as likely as the others

    variance: Any = formula(lambda self: (self.high - self.low).pow(2) / 12)
    stddev: Any = formula(lambda self: (self.high - self.low) / 12**0.5)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        unit = rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + unit * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        inside = (self.low <= value) & (value < self.high)
        return log(inside.type_as(self.low)) - log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return log(self.high - self.low)
