"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

from ... import Tensor, exp, lgamma, no_grad
from . import constraints
from .binomial import Binomial
from .categorical import Categorical, OfCategories
from .utils import broadcast_all


class Multinomial(OfCategories):
    """How often each category is drawn in `total_count` draws of probabilities `probs`, or by `logits` (..., K)."""

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError(
                "Multinomial: total_count must be one int, the same for the whole batch"
            )
        self.total_count = total_count
        super().__init__(Categorical(probs, logits), validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            drawn = self._categorical.sample((self.total_count, *sample_shape)).movedim(0, -1)
            counts = self.probs.new_zeros(self._extended_shape(sample_shape))
            return counts.scatter_add(-1, drawn, counts.new_ones(drawn.shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        logits, value = broadcast_all(self.logits, value)
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        logits = logits.masked_fill((value == 0) & (logits == float("-inf")), 0.0)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        count = self.probs.new_tensor(float(self.total_count))
        each = Binomial(self.total_count, probs=self.probs, validate_args=False)
        values = each.enumerate_support(expand=False)[1:]
        ways = (exp(each.log_prob(values)) * lgamma(values + 1)).sum((0, -1))
        return count * self._categorical.entropy() - lgamma(count + 1) + ways
