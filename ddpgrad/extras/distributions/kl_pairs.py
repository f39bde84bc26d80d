"""Kullback-Leibler divergences between distributions of two kinds.

KL(p || q) is the mean under p of -log q(x), less the entropy of p. Each rule writes that mean by the moments of p that the
density of q asks for, so that it serves every p whose moments are known. Where p has values that q does not, it is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ... import Tensor, as_tensor, broadcast_shapes, digamma, erf, exp, lgamma, log, log1p, where, xlogy
from . import constraints
from .binary import Bernoulli, Binomial, ContinuousBernoulli
from .dirichlet import Beta
from .gamma import Gamma
from .kl_registry import register_kl
from .location_scale import EULER, Gumbel, Laplace, Normal
from .rates import Exponential, Poisson
from .transformed_families import Pareto
from .uniform import Uniform


def _mean_log(p: Any) -> Tensor:
    """The mean of log(x)."""
    if isinstance(p, Beta):
        return digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0)
    if isinstance(p, Gamma):
        return digamma(p.concentration) - log(p.rate)
    if isinstance(p, Exponential):
        return -EULER - log(p.rate)
    if isinstance(p, Pareto):
        return log(p.scale) + p.alpha.reciprocal()
    return _mean_log_between(p.low, p.high)


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    """The mean of log(x) of an x that is uniform from `low` to `high`."""
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


def _mean_log_rest(p: Any) -> Tensor:
    """The mean of log(1 - x)."""
    if isinstance(p, Beta):
        return digamma(p.concentration0) - digamma(p.concentration1 + p.concentration0)
    return _mean_log_between(1 - p.high, 1 - p.low)


def _mean_decay(p: Any, rate: Tensor) -> Tensor:
    """The mean of exp(-rate * x)."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + rate)
    if isinstance(p, Gamma):
        return exp(p.concentration * (log(p.rate) - log(p.rate + rate)))
    if isinstance(p, Normal):
        return exp(rate * (0.5 * rate * p.variance - p.loc))
    return (exp(-rate * p.low) - exp(-rate * p.high)) / (rate * (p.high - p.low))


def _to_beta(p: Any, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    return lgamma(a) + lgamma(b) - lgamma(a + b) - (a - 1) * _mean_log(p) - (b - 1) * _mean_log_rest(p)


def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.mean * q.logits - log1p(-q.probs) - q._log_norm()


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return q.rate * p.mean - log(q.rate)


def _to_gamma(p: Any, q: Gamma) -> Tensor:
    a, rate = q.concentration, q.rate
    return lgamma(a) - xlogy(a, rate) - (a - 1) * _mean_log(p) + rate * p.mean


def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    rate = q.scale.reciprocal()
    return (p.mean - q.loc) * rate + exp(q.loc * rate) * _mean_decay(p, rate) + log(q.scale)


def _to_normal(p: Any, q: Normal) -> Tensor:
    square = p.variance + (p.mean - q.loc).pow(2)
    if isinstance(p, Pareto):
        square = where(p.alpha <= 2, math.inf, square)  # where also the mean may be infinite
    return 0.5 * (square / q.variance + math.log(2 * math.pi)) + log(q.scale)


def _to_laplace(p: Normal, q: Laplace) -> Tensor:
    away, spread = p.loc - q.loc, p.scale * math.sqrt(2)
    distance = spread / math.sqrt(math.pi) * exp(-(away / spread).pow(2)) + away * erf(away / spread)
    return distance / q.scale + log(2 * q.scale)


def _to_pareto(p: Any, q: Pareto) -> Tensor:
    return (q.alpha + 1) * _mean_log(p) - q.alpha * log(q.scale) - log(q.alpha)


def _to_uniform(p: Any, q: Uniform) -> Tensor:
    return log(q.high - q.low)


def _to_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.mean * log(q.rate)


def _ends(of: Any) -> tuple[Any, Any]:
    """Between which numbers the values lie."""
    support = of.support
    if support is constraints.boolean:
        return 0, 1
    return getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)


def _infinite(p: Any, q: Any) -> Tensor:
    return p.mean.new_full(broadcast_shapes(p.batch_shape, q.batch_shape), math.inf)


def _rule(mean: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    def divergence(p: Any, q: Any) -> Tensor:
        finite = mean(p, q) - p.entropy()
        (low, high), (least, most) = _ends(p), _ends(q)
        return where(as_tensor(low < least) | as_tensor(high > most), math.inf, finite)

    return divergence


_FINITE = (
    (_to_beta, Beta, (Uniform,)),
    (_to_continuous_bernoulli, ContinuousBernoulli, (Beta, Uniform)),
    (_to_exponential, Exponential, (Beta, ContinuousBernoulli, Gamma, Pareto, Uniform)),
    (_to_gamma, Gamma, (Beta, Exponential, Pareto, Uniform)),
    (_to_gumbel, Gumbel, (Exponential, Gamma, Normal, Uniform)),
    (_to_laplace, Laplace, (Normal,)),
    (_to_normal, Normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform)),
    (_to_pareto, Pareto, (Uniform,)),
    (_to_poisson, Poisson, (Bernoulli,)),
    (_to_uniform, Uniform, (Beta, ContinuousBernoulli)),
)
_FROM_ZERO_ON = (Exponential, Gamma)
_ALL_NUMBERS = (Gumbel, Laplace, Normal)
_INFINITE = (
    (Beta, (*_FROM_ZERO_ON, *_ALL_NUMBERS, Pareto)),
    (ContinuousBernoulli, (*_FROM_ZERO_ON, *_ALL_NUMBERS, Pareto)),
    (Uniform, (*_FROM_ZERO_ON, *_ALL_NUMBERS, Pareto)),
    (Exponential, _ALL_NUMBERS),
    (Gamma, _ALL_NUMBERS),
    (Pareto, (Beta, ContinuousBernoulli, *_FROM_ZERO_ON, *_ALL_NUMBERS)),
    (Bernoulli, (Poisson,)),
    (Binomial, (Poisson,)),
)

for _mean, _q, _kinds in _FINITE:
    for _p in _kinds:
        register_kl(_p, _q)(_rule(_mean))
for _q, _kinds in _INFINITE:
    for _p in _kinds:
        register_kl(_p, _q)(_infinite)
