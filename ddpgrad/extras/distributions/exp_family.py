"""Exponential families: distributions whose log density is linear in natural parameters."""

from __future__ import annotations

from typing import Any

from ... import Tensor
from ...autograd import grad
from .distribution import Distribution
from .utils import unsaid

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """p(x) = exp(<t(x), θ> - F(θ) + k(x)) with natural parameters θ, the log normalizer F and the carrier k.

    A class gives `_natural_params`, a tuple of tensors (*batch_shape, ...), `_log_normalizer(*natural_params)` and
    `_mean_carrier_measure`, the mean of k, a number or a tensor; what it has not given is a NotImplementedError. The mean of
    t(x) is the gradient of F, and gives the entropy (https://arxiv.org/abs/0911.4863) and divergences.
    """

    _natural_params: Any = unsaid("_natural_params")
    _log_normalizer: Any = unsaid("_log_normalizer")
    _mean_carrier_measure: Any = unsaid("_mean_carrier_measure")

    def _normalizer_and_means(self) -> tuple[list[Tensor], Tensor, tuple[Any, ...]]:
        """The natural parameters, F there, and the mean of t(x), which is the gradient of F."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        log_normalizer = self._log_normalizer(*natural)
        return natural, log_normalizer, grad(log_normalizer.sum(), natural, create_graph=True)

    def entropy(self) -> Tensor:
        """F(θ) - <θ, the mean of t(x)> - the mean of k(x)."""
        carrier = self._mean_carrier_measure
        natural, result, means = self._normalizer_and_means()
        result = result - carrier
        for parameter, mean in zip(natural, means, strict=True):
            result = result - _over_events(parameter * mean, len(self._batch_shape))
        return result


def bregman(p: Any, q: Any) -> Tensor:
    """KL(p || q) of one exponential family: F(q) - F(p) - <θ of q - θ of p, the mean of t(x) under p>."""
    _, log_normalizer, means = p._normalizer_and_means()
    result = q._log_normalizer(*q._natural_params) - log_normalizer
    dims = len(result.shape)
    for ours, theirs, mean in zip(p._natural_params, q._natural_params, means, strict=True):
        result = result - _over_events((theirs - ours.detach()) * mean, dims)
    return result


def _over_events(value: Tensor, batch_dims: int) -> Tensor:
    """The sum over all but the first `batch_dims` dimensions."""
    return value.flatten(batch_dims).sum(-1) if value.ndim > batch_dims else value
