"""Distributions of one probability, given as such or as log-odds."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import (
    Tensor,
    abs,
    arange,
    bernoulli,
    binary_cross_entropy_with_logits,
    binomial,
    exp,
    expm1,
    finfo,
    floor,
    lgamma,
    log,
    log1p,
    no_grad,
    poisson,
    rand,
    sigmoid,
    where,
)
from ...nn.functional import logsigmoid, softplus
from . import constraints
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .gamma import Gamma
from .utils import (
    binary_entropy,
    broadcast_all,
    clamp_probs,
    formula,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    same_as,
)


class BinaryDistribution(Distribution):
    """Keeps `probs` or `logits`, whichever is given, and makes the other when it is asked for."""

    def _keep(self, probs: Any, logits: Any, *others: Any) -> tuple[Tensor, ...]:
        """Set the one that is given; `others` come back in the shape that all have together, and in its type."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        *beside, param = broadcast_all(*others, logits if probs is None else probs)
        setattr(self, "logits" if probs is None else "probs", param)
        return tuple(other.type_as(param) for other in beside)

    @property
    def _param(self) -> Tensor:
        return vars(self)["probs" if "probs" in vars(self) else "logits"]  # one that is there already

    param_shape = same_as("_param.shape")

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, is_binary=True)


class Bernoulli(BinaryDistribution, ExponentialFamily):
    """1 with probability `probs`, or log-odds `logits`, else 0."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._keep(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    mean: Any = same_as("probs")

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return mode.masked_fill(self.probs == 0.5, float("nan"))

    variance: Any = formula(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    _mean_carrier_measure: Any = 0

    _natural_params: Any = formula(lambda self: (self.logits,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return softplus(x)


class Geometric(BinaryDistribution):
    """The number of failures before the first success of probability `probs`, or log-odds `logits`."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._keep(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(f"Geometric needs probs > 0, got:\n{self.probs}")

    mean: Any = formula(lambda self: 1.0 / self.probs - 1.0)
    mode: Any = formula(lambda self: self.probs.new_zeros(self.probs.shape))
    variance: Any = formula(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            u = self.probs.new_empty(shape).uniform_(finfo(self.probs.dtype).tiny, 1)
            return floor(log(u) / log1p(-self.probs.expand(shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)  # 0 failures are certain: 0 * log(0) is 0
        return value * log1p(-probs) + log(self.probs)

    def entropy(self) -> Tensor:
        return binary_entropy(self.logits, self.probs) / self.probs


class Binomial(BinaryDistribution):
    """The number of successes, of probability `probs` or log-odds `logits`, among `total_count` trials."""

    arg_constraints: ClassVar = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._keep(probs, logits, total_count)
        super().__init__(self.total_count.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    mean: Any = formula(lambda self: self.total_count * self.probs)
    mode: Any = formula(lambda self: floor((self.total_count + 1) * self.probs).minimum(self.total_count))
    variance: Any = formula(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        count = self.total_count
        ways = lgamma(count + 1) - lgamma(value + 1) - lgamma(count - value + 1)
        return ways + value * self.logits + count * logsigmoid(-self.logits)

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._one_count("enumerate_support")
        like = self.total_count
        return self._enumerated(arange(1 + count, dtype=like.dtype, device=like.device), expand)

    def _one_count(self, name: str) -> int:
        count = int(self.total_count.max())
        if int(self.total_count.min()) != count:
            raise NotImplementedError(f"Binomial.{name}: all elements of total_count must be the same")
        return count


class NegativeBinomial(BinaryDistribution):
    """The number of successes, of probability `probs` or log-odds `logits`, before `total_count` failures."""

    arg_constraints: ClassVar = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._keep(probs, logits, total_count)
        super().__init__(self.total_count.shape, validate_args=validate_args)

    mean: Any = formula(lambda self: self.total_count * exp(self.logits))
    mode: Any = formula(lambda self: floor((self.total_count - 1) * exp(self.logits)).clamp(min=0.0))
    variance: Any = formula(lambda self: self.mean / sigmoid(-self.logits))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            mixed = Gamma(self.total_count, exp(-self.logits), validate_args=False)
            return poisson(mixed.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        count = self.total_count
        chance = count * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        ways = lgamma(count + value) - lgamma(1.0 + value) - lgamma(count)
        return chance + ways.masked_fill(count + value == 0.0, 0.0)


class ContinuousBernoulli(BinaryDistribution, ExponentialFamily):
    """Numbers in [0, 1] whose density is proportional to probs**x * (1 - probs)**(1 - x).

    lims: between them series around probs = 0.5 stand for formulas that lose their digits there.
    Source: https://arxiv.org/abs/1907.06845
    """

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._keep(probs, logits)
        if probs is not None:
            if validate_args is not None and not self.arg_constraints["probs"].check(self.probs).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)

    @lazy_property
    def probs(self) -> Tensor:
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _away(self) -> Tensor:
        """The probabilities, and the lower limit in place of those between the limits."""
        return where(self._outside(), self.probs, self._lims[0] * self.probs.new_ones(self.probs.shape))

    def _log_norm(self) -> Tensor:
        """The logarithm of the density's constant factor."""
        p = self._away()
        below, above = where(p <= 0.5, p, 0.0), where(p >= 0.5, p, 1.0)
        exact = log(abs(log1p(-p) - log(p))) - where(p <= 0.5, log1p(-2.0 * below), log(2.0 * above - 1.0))
        x = (self.probs - 0.5).pow(2)
        return where(self._outside(), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        p, x = self._away(), self.probs - 0.5
        exact = p / (2.0 * p - 1.0) + 1.0 / (log1p(-p) - log(p))
        return where(self._outside(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def variance(self) -> Tensor:
        p, x = self._away(), (self.probs - 0.5).pow(2)
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (log1p(-p) - log(p)).pow(2)
        return where(self._outside(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    stddev: Any = formula(lambda self: self.variance.sqrt())

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        p = self._away()
        exact = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = where(self._outside(), exact, value)
        return where(value <= 0.0, 0.0, where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._away()
        exact = (log1p(-p + value * (2.0 * p - 1.0)) - log1p(-p)) / (log(p) - log1p(-p))
        return where(self._outside(), exact, value)

    def entropy(self) -> Tensor:
        no, yes = log1p(-self.probs), log(self.probs)
        return self.mean * (no - yes) - self._log_norm() - no

    _mean_carrier_measure: Any = 0

    _natural_params: Any = formula(lambda self: (self.logits,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        """log((exp(x) - 1) / x), around 0 by its series."""
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        away = where(outside, x, (self._lims[0] - 0.5) * x.new_ones(x.shape))
        exact = log(abs(expm1(away))) - log(abs(away))
        return where(outside, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
