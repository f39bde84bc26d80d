"""The binomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, abs, arange, binomial, exp, floor, lgamma, log1p, no_grad
from . import constraints
from .binary import BinaryDistribution


class Binomial(BinaryDistribution):
    """The number of successes, of probability `probs` or log-odds `logits`, among `total_count` trials."""

    arg_constraints: ClassVar = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._keep(probs, logits, total_count)
        super().__init__(self.total_count.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return floor((self.total_count + 1) * self.probs).minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        count = self.total_count
        ways = lgamma(count + 1) - lgamma(value + 1) - lgamma(count - value + 1)
        # log(1 - p) by the logits, without overflow
        failure = -(self.logits.clamp(min=0) + log1p(exp(-abs(self.logits))))
        return ways + value * self.logits + count * failure

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._one_count("enumerate_support")
        like = self.total_count
        return self._enumerated(arange(1 + count, dtype=like.dtype, device=like.device), expand)

    def _one_count(self, name: str) -> int:
        count = int(self.total_count.max())
        if int(self.total_count.min()) != count:
            raise NotImplementedError(f"Binomial.{name}: all elements of total_count must be the same")
        return count
