"""Student's t-distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, digamma, lgamma, log, log1p, rsqrt, where
from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import broadcast_all, same_as, standard_normal


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

    @property
    def mean(self) -> Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

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
