"""The gamma distribution, with gradients of its draws to the shape parameter."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ... import Tensor, digamma, finfo, igamma, lgamma, log, xlogy
from ...autograd.function import Function, once_differentiable
from ...ops.creation.factories import finish
from ...random import default_generator
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all


class StandardGamma(Function):
    """Draws from gamma distributions of rate 1. Differentiable once: https://arxiv.org/abs/1805.08498."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        alpha = concentration.numpy(force=True)
        drawn = finish(default_generator().standard_gamma(alpha).astype(alpha.dtype), concentration.device)
        ctx.save_for_backward(concentration, drawn)
        return drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        concentration, drawn = ctx.saved_tensors
        slope = gamma_slope(concentration.numpy(force=True), drawn.numpy(force=True))
        return grad_output * finish(slope.astype(concentration.dtype.numpy), concentration.device)


def gamma_slope(alpha: np.ndarray, x: np.ndarray) -> np.ndarray:
    """dx / d alpha at a fixed value of the distribution function P(alpha, x), float64.

    It is -(dP / d alpha) / (dP / dx), where P is the sum over k of exp(-x) x**(alpha+k) / Γ(alpha+k+1),
    and is differentiated term by term.
    """
    alpha, x = alpha.astype(np.float64), x.astype(np.float64)
    log_x = np.log(x)
    order = alpha + 1
    # Terms are counted in units of the first one, in which dP / dx is alpha / x.
    log_ratio = log_x - digamma(finish(order)).numpy()
    total, term = log_ratio.copy(), np.ones_like(log_ratio)
    while True:
        term *= x / order
        log_ratio -= 1 / order
        order += 1
        total += term * log_ratio
        if ((order > x) & (term * np.abs(log_ratio) <= 1e-17 * np.abs(total))).all():
            return -total * x / alpha


class Gamma(Distribution):
    """The gamma distribution of shape `concentration` and mean concentration / `rate`."""

    arg_constraints: ClassVar = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = StandardGamma.apply(self.concentration.expand(shape)) / self.rate.expand(shape)
        drawn.detach().clamp_(min=finfo(drawn.dtype).tiny)  # 0 lies outside of the support; gradients stay
        return drawn

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        a = self.concentration
        return xlogy(a, self.rate) + xlogy(a - 1, value) - self.rate * value - lgamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1.0 - a) * digamma(a)
