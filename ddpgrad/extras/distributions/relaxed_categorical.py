"""The relaxed one-hot categorical distribution, also called Gumbel-softmax."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, log, logsumexp, rand
from . import constraints
from .categorical import Categorical, OfCategories
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform
from .utils import clamp_probs, same_as


class ExpRelaxedCategorical(OfCategories):
    """The logarithms of `RelaxedOneHotCategorical` (https://arxiv.org/abs/1611.00712)."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        super().__init__(Categorical(probs, logits), validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits.expand(shape) - log(-log(u))) / self.temperature
        return scores - logsumexp(scores, dim=-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        k = self._event_shape[0]
        temperature = self.temperature
        if not isinstance(temperature, Tensor):
            temperature = value.new_tensor(temperature)
        score = self.logits - value * temperature
        score = (score - logsumexp(score, dim=-1, keepdim=True)).sum(-1)
        return score + log(temperature) * (k - 1) + math.lgamma(k)


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of the simplex that come near to one-hot vectors as `temperature` goes to 0."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    temperature = same_as("base_dist.temperature")
    probs = same_as("base_dist.probs")
    logits = same_as("base_dist.logits")
