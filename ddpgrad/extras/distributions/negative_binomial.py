"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, exp, floor, lgamma, no_grad, poisson, sigmoid
from ...nn.functional import logsigmoid
from . import constraints
from .binary import BinaryDistribution
from .gamma import Gamma


class NegativeBinomial(BinaryDistribution):
    """The number of successes, of probability `probs` or log-odds `logits`, before `total_count` failures."""

    arg_constraints: ClassVar = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._keep(probs, logits, total_count)
        super().__init__(self.total_count.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return floor((self.total_count - 1) * exp(self.logits)).clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / sigmoid(-self.logits)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            mixed = Gamma(self.total_count, exp(-self.logits), validate_args=False)
            return poisson(mixed.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        count = self.total_count
        chance = count * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        ways = lgamma(count + value) - lgamma(1.0 + value) - lgamma(count)
        return chance + ways.masked_fill(count + value == 0.0, 0.0)
