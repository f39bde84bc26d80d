"""The Fisher-Snedecor distribution, also called F."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, finfo, lgamma, log, log1p, where
from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .utils import broadcast_all


class FisherSnedecor(Distribution):
    """The quotient of two chi-squared numbers with `df1` and `df2` degrees of freedom, each divided by its own."""

    arg_constraints: ClassVar = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

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
