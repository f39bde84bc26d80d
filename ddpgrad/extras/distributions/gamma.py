"""The gamma distribution, with gradients of its draws to the shape parameter, and what is made of its draws."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ... import Tensor, as_tensor, digamma, finfo, igamma, lgamma, log, log1p, rsqrt, where, xlogy
from ...autograd.function import Function, once_differentiable
from ...ops.creation.factories import finish
from ...random import rank_generator
from . import constraints
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .utils import broadcast_all, formula, same_as, standard_normal


def _standard_gamma(concentration: Tensor, generator: Any = None) -> Tensor:
    """Draws from gamma distributions of rate 1, with gradients to `concentration`; from the default generator."""
    if generator is not None:
        raise NotImplementedError("_standard_gamma(): draws come from the default generator here")
    return StandardGamma.apply(concentration)


class StandardGamma(Function):
    """Draws from gamma distributions of rate 1. Differentiable once: https://arxiv.org/abs/1805.08498."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        alpha = concentration.numpy(force=True)
        made = rank_generator().standard_gamma(alpha).astype(alpha.dtype)
        # 0, to which a small number may be rounded, is not in the support and has no slope.
        drawn = finish(np.maximum(made, np.finfo(alpha.dtype).tiny), concentration.device)
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


class Gamma(ExponentialFamily):
    """The gamma distribution of shape `concentration` and mean concentration / `rate`."""

    arg_constraints: ClassVar = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    mean: Any = formula(lambda self: self.concentration / self.rate)
    mode: Any = formula(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance: Any = formula(lambda self: self.concentration / self.rate.pow(2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        drawn.detach().clamp_(min=finfo(drawn.dtype).tiny)  # 0 lies outside of the support; gradients stay
        return drawn

    def log_prob(self, value: Any) -> Tensor:
        value = as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._check_sample(value)
        a = self.concentration
        return xlogy(a, self.rate) + xlogy(a - 1, value) - self.rate * value - lgamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1.0 - a) * digamma(a)

    _mean_carrier_measure: Any = 0

    _natural_params: Any = formula(lambda self: (self.concentration - 1, -self.rate))

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return lgamma(x + 1) - (x + 1) * log(-y)


class Chi2(Gamma):
    """The chi-squared distribution with `df` degrees of freedom: Gamma(df / 2, 1 / 2)."""

    arg_constraints: ClassVar = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.concentration, new.rate = self.concentration.expand(batch_shape), self.rate.expand(batch_shape)
        return new

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2


class FisherSnedecor(Distribution):
    """The quotient of two chi-squared numbers with `df1` and `df2` degrees of freedom, each divided by its own."""

    arg_constraints: ClassVar = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    mean: Any = formula(lambda self: where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan))

    @property
    def mode(self) -> Tensor:
        peak = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, peak, math.nan)

    @property
    def variance(self) -> Tensor:
        m, n = self.df1, self.df2
        return where(n > 4, 2 * n.pow(2) * (m + n - 2) / (m * (n - 2).pow(2) * (n - 4)), math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        tiny = finfo(self.df1.dtype).tiny
        above, below = (
            Gamma(df * 0.5, df, validate_args=False).rsample(sample_shape) for df in (self.df1, self.df2)
        )
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        m, n, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        constant = lgamma(m + n) - lgamma(m) - lgamma(n) + m * log(ratio)
        return constant + (m - 1) * log(value) - (m + n) * log1p(ratio * value)


class StudentT(Distribution):
    """Student's t-distribution with `df` degrees of freedom, moved by `loc` and stretched by `scale`."""

    arg_constraints: ClassVar = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    mean: Any = formula(lambda self: self.loc.masked_fill(self.df <= 1, math.nan))
    mode: Any = same_as("loc")

    @property
    def variance(self) -> Tensor:
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        return where(self.df > 2, finite, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = standard_normal(self._extended_shape(sample_shape), self.df)
        return self.loc + self.scale * (x * rsqrt(self._chi2.rsample(sample_shape) / self.df))

    def _log_normalizer(self) -> Tensor:
        half = self.df / 2
        return (
            log(self.scale) + 0.5 * log(self.df) + 0.5 * math.log(math.pi) + lgamma(half) - lgamma(half + 0.5)
        )

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        y = (value - self.loc) / self.scale
        return -0.5 * (self.df + 1.0) * log1p(y**2.0 / self.df) - self._log_normalizer()

    def entropy(self) -> Tensor:
        half = self.df / 2
        return self._log_normalizer() + (half + 0.5) * (digamma(half + 0.5) - digamma(half))
