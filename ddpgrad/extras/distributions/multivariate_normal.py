"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, broadcast_shapes, matmul
from ...linalg import solve_triangular
from . import constraints
from .covariance import CovarianceFamily
from .utils import same_as, standard_normal

_LOG_TWO_PI = math.log(2 * math.pi)


class MultivariateNormal(CovarianceFamily):
    """The normal distribution of vectors with mean `loc` (..., K) and one of three matrices (..., K, K)."""

    arg_constraints: ClassVar = {"loc": constraints.real_vector, **CovarianceFamily.arg_constraints}
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = self._given(
            covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
        batch, event = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1]), loc.shape[-1:]
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        self.loc = loc.expand((*batch, *event))
        super().__init__(batch, event, validate_args=validate_args)

    mean: Any = same_as("loc")
    mode: Any = same_as("loc")

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.pow(2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + matmul(self.scale_tril, eps.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        distance = squared_mahalanobis(self.scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * _LOG_TWO_PI + distance) - self._half_log_det()

    def entropy(self) -> Tensor:
        return 0.5 * self._event_shape[0] * (1.0 + _LOG_TWO_PI) + self._half_log_det()


def squared_mahalanobis(scale_tril: Tensor, difference: Tensor) -> Tensor:
    """|L⁻¹ d|² for factors (..., K, K) and vectors (..., K), whose leading dimensions broadcast."""
    whitened = solve_triangular(scale_tril, difference.unsqueeze(-1), upper=False)
    return whitened.squeeze(-1).pow(2).sum(-1)
