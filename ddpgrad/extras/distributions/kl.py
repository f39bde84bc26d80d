"""Kullback-Leibler divergences between distributions of one kind; `kl_pairs` has those between kinds."""

from __future__ import annotations

import math

from ... import Tensor, diag_embed, digamma, exp, lgamma, log, matmul, where
from ...linalg import solve_triangular
from . import kl_pairs  # which fills the table, too
from .binary import Bernoulli, Binomial, ContinuousBernoulli, Geometric
from .categorical import Categorical, OneHotCategorical
from .covariance import MultivariateNormal, squared_mahalanobis
from .dirichlet import Beta, Dirichlet
from .distribution import Distribution
from .exp_family import ExponentialFamily, bregman
from .gamma import Gamma
from .independent import Independent
from .kl_registry import _KL_REGISTRY, kl_divergence, register_kl  # noqa: F401 - libraries import the table from here
from .location_scale import EULER, Cauchy, Gumbel, Laplace, Normal
from .lowrank_multivariate_normal import LowRankMultivariateNormal
from .rates import Exponential, Poisson
from .transformed_distribution import TransformedDistribution
from .transformed_families import HalfNormal, Pareto
from .uniform import Uniform
from .utils import sum_rightmost

__all__ = ["kl_divergence", "kl_pairs", "register_kl"]


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """By the gradient of the log normalizer, for families of one type; its gradient is one to q alone."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman divergences"
        )
    return bregman(p, q)


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - log(ratio))


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    def part(a: Tensor, b: Tensor) -> Tensor:
        """a * log(a / b), with its limits at 0."""
        return where(a.eq(0), 0.0, where(b.eq(0), math.inf, a * (log(a) - log(b))))

    return part(p.probs, q.probs) + part(1 - p.probs, 1 - q.probs)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL of Binomials is known where p.total_count is not below q.total_count")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return where(p.total_count > q.total_count, math.inf, p.total_count * each)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    constants = p._log_norm() + (-p.probs).log1p() - q._log_norm() - (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + constants


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    """Source: https://arxiv.org/abs/1905.10965"""
    apart = ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log()
    return apart - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, q_at, p_at = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    grown = exp(q_at + lgamma(1 + ratio) - p_at)
    return (p_at - q_at) + (ratio * EULER - log(ratio) - (1 + EULER)) + grown


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    kl = q.alpha * log(p.scale / q.scale) - log(ratio) + ratio - 1
    return where(p.support.lower_bound < q.support.lower_bound, math.inf, kl)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    each = p.probs * (p.logits - q.logits)
    each = where(q.probs == 0, math.inf, each)
    return where(p.probs == 0, 0.0, each).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    inside = (q.low <= p.low) & (p.high <= q.high)
    return where(inside, log((q.high - q.low) / (p.high - p.low)), math.inf)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - log(ratio)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    away = (p.loc - q.loc).abs()
    return log(q.scale / p.scale) + away / q.scale + p.scale / q.scale * exp(-away / p.scale) - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    return (
        q.concentration * log(p.rate / q.rate)
        + lgamma(q.concentration)
        - lgamma(p.concentration)
        + (p.concentration - q.concentration) * digamma(p.concentration)
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    return (
        lgamma(total)
        - lgamma(b.sum(-1))
        - (lgamma(a) - lgamma(b)).sum(-1)
        + ((a - b) * (digamma(a) - digamma(total).unsqueeze(-1))).sum(-1)
    )


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (log(p.rate) - log(q.rate)) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


def _same_events(p: Distribution, q: Distribution) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed, "
            f"got {p.event_shape} and {q.event_shape}"
        )


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    _same_events(p, q)
    spread = solve_triangular(q.scale_tril, p.scale_tril, upper=False).pow(2).sum((-2, -1))
    distance = squared_mahalanobis(q.scale_tril, q.loc - p.loc)
    return q._half_log_det() - p._half_log_det() + 0.5 * (spread + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_full(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Tensor:
    """The trace of Q**-1 @ P is that of its two parts."""
    _same_events(p, q)
    root = diag_embed(p.cov_diag.sqrt())
    spread = sum(_squares(solve_triangular(q.scale_tril, part, upper=False)) for part in (p.cov_factor, root))
    distance = squared_mahalanobis(q.scale_tril, q.loc - p.loc)
    return 0.5 * (2 * q._half_log_det() - p._log_det() + spread + distance - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _to_low_rank(p: MultivariateNormal | LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    """The trace of Q**-1 @ P by the Woodbury identity, for each part F @ F.mT that P is the sum of."""
    _same_events(p, q)
    if isinstance(p, LowRankMultivariateNormal):
        parts, log_det = (p.cov_factor, diag_embed(p.cov_diag.sqrt())), p._log_det()
    else:
        parts, log_det = (p.scale_tril,), 2 * p._half_log_det()
    scaled = q.cov_factor.mT / q.cov_diag.unsqueeze(-2)
    low = solve_triangular(q._capacitance_tril, scaled, upper=False)
    spread = sum(
        _squares(part / q.cov_diag.sqrt().unsqueeze(-1)) - _squares(matmul(low, part)) for part in parts
    )
    distance = q._squared_mahalanobis(q.loc - p.loc)
    return 0.5 * (q._log_det() - log_det + spread + distance - p.event_shape[0])


def _squares(x: Tensor) -> Tensor:
    """The sum of the squares of a matrix: the trace of x @ x.mT."""
    return x.pow(2).sum((-2, -1))


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            f"KL of Independents needs as many dimensions, got {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL of transformed distributions is known when their transforms are equal")
    return kl_divergence(p.base_dist, q.base_dist)
