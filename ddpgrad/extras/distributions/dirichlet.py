"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, digamma, finfo, lgamma, xlogy
from . import constraints
from .distribution import Distribution
from .gamma import StandardGamma


def _sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """A draw for each row of weights, as `torch._sample_dirichlet`; from the default generator."""
    if generator is not None:
        raise NotImplementedError("_sample_dirichlet(): draws come from the default generator here")
    return Dirichlet(input).sample()


class Dirichlet(Distribution):
    """Probabilities of K categories, with weights `concentration` (..., K).

    Gradients of draws go through the K gamma numbers that are normalized. PyTorch takes another,
    also unbiased estimate; values are equal.
    """

    arg_constraints: ClassVar = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        first = mode.new_zeros(mode.shape)
        first[..., 0] = 1.0
        corners = (self.concentration < 1).all(
            -1, keepdim=True
        )  # then every corner is a peak, and the first is given
        return first.where(corners, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = StandardGamma.apply(self.concentration.expand(self._extended_shape(sample_shape)))
        out = drawn / drawn.sum(-1, keepdim=True)
        out.detach().clamp_(min=finfo(out.dtype).tiny)
        return out

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        a = self.concentration
        return xlogy(a - 1.0, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return (
            lgamma(a).sum(-1)
            - lgamma(total)
            - (k - total) * digamma(total)
            - ((a - 1.0) * digamma(a)).sum(-1)
        )
