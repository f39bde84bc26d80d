"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, log_softmax, logsumexp, no_grad
from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .utils import formula, same_as


class MixtureSameFamily(Distribution):
    """Draws from one of K distributions, the last batch dimension of `component_distribution`.

    mixture_distribution: a Categorical over K, whose batch is that of the components without K.
    """

    arg_constraints: ClassVar = {}

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                "The Mixture distribution needs to be an instance of torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution need to be an instance of torch.distributions.Distribution"
            )
        batch, components = component_distribution.batch_shape[:-1], component_distribution.batch_shape[-1:]
        for ours, theirs in zip(reversed(batch), reversed(mixture_distribution.batch_shape), strict=False):
            if 1 not in (ours, theirs) and ours != theirs:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixture_distribution.batch_shape}) is not compatible with "
                    f"`component_distribution.batch_shape`({component_distribution.batch_shape})"
                )
        if mixture_distribution.param_shape[-1:] != components:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.param_shape[-1]}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({components})"
            )
        self._mixture_distribution, self._component_distribution = (
            mixture_distribution,
            component_distribution,
        )
        super().__init__(batch, component_distribution.event_shape, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        k = self._mixture_distribution.param_shape[-1]
        new._component_distribution = self._component_distribution.expand((*batch_shape, k))
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution, component_distribution = (
        same_as("_mixture_distribution"),
        same_as("_component_distribution"),
    )

    def _weights(self) -> Tensor:
        return self._spread(self._mixture_distribution.probs)

    def _spread(self, x: Tensor) -> Tensor:
        """`x` (..., K) with the event dimensions as ones behind."""
        return x.reshape((*x.shape, *[1] * len(self._event_shape)))

    @property
    def _k(self) -> int:
        """The dimension of the components in what they return."""
        return -1 - len(self._event_shape)

    mean: Any = formula(lambda self: (self._weights() * self._component_distribution.mean).sum(self._k))

    @property
    def variance(self) -> Tensor:
        weights, part = self._weights(), self._component_distribution
        away = part.mean - self.mean.unsqueeze(self._k)
        return (weights * part.variance).sum(self._k) + (weights * away.pow(2)).sum(self._k)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            chosen = self._spread(self._mixture_distribution.sample(sample_shape).unsqueeze(-1))
            drawn = self._component_distribution.sample(sample_shape)
            shape = list(drawn.shape)
            shape[self._k] = 1
            return drawn.gather(drawn.ndim + self._k, chosen.expand(shape)).squeeze(self._k)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        each = self._component_distribution.log_prob(value.unsqueeze(self._k))
        return logsumexp(each + log_softmax(self._mixture_distribution.logits, dim=-1), dim=-1)

    def cdf(self, value: Tensor) -> Tensor:
        return (
            self._component_distribution.cdf(value.unsqueeze(self._k)) * self._mixture_distribution.probs
        ).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self._mixture_distribution}, {self._component_distribution})"
