"""Relaxed distributions: numbers between 0 and 1 through which gradients flow, in place of draws from categories."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, exp, log, log1p, logsumexp, rand
from . import constraints
from .binary import BinaryDistribution
from .categorical import Categorical, OfCategories
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform
from .utils import broadcast_all, clamp_probs, same_as


class LogitRelaxedBernoulli(BinaryDistribution):
    """The log-odds of `RelaxedBernoulli` (https://arxiv.org/abs/1611.00712)."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        self._keep(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(rand(shape, dtype=probs.dtype, device=probs.device))
        return (log(u) - log1p(-u) + log(probs) - log1p(-probs)) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        logits, value = broadcast_all(self.logits, value)
        away = logits - value * self.temperature
        temperature = self.temperature
        if not isinstance(temperature, Tensor):
            temperature = value.new_tensor(temperature)
        return log(temperature) + away - 2 * log1p(exp(away))


class RelaxedBernoulli(TransformedDistribution):
    """Numbers in (0, 1) that come near to Bernoulli draws as `temperature` goes to 0."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    temperature = same_as("base_dist.temperature")
    probs = same_as("base_dist.probs")
    logits = same_as("base_dist.logits")


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
