"""The Laplace distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ...backend.dtype import finfo
from ...core.tensor import Tensor
from ...ops.elementwise.unary import abs, expm1, log, log1p, sign
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all


class Laplace(Distribution):
    """The Laplace distribution: exp(-|x - loc| / scale) / (2 scale)."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        lowest = finfo(self.loc.dtype).eps - 1  # not -1, whose logarithm below would be infinite
        u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(lowest, 1)
        return self.loc - self.scale * sign(u) * log1p(-abs(u))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -log(2 * self.scale) - abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * sign(away) * expm1(-abs(away) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        centred = value - 0.5
        return self.loc - self.scale * sign(centred) * log1p(-2 * abs(centred))

    def entropy(self) -> Tensor:
        return 1 + log(2 * self.scale)
