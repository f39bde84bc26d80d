"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, abs, binary_cross_entropy_with_logits, log, log1p, rand, where
from . import constraints
from .binary import BinaryDistribution
from .utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs


class ContinuousBernoulli(BinaryDistribution):
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

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

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
