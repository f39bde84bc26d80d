"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...core.tensor import Tensor
from ...linalg import cholesky, solve_triangular
from ...ops.creation.factories import eye
from ...ops.elementwise.unary import log
from ...ops.linalg.decompositions import cholesky_inverse
from ...ops.linalg.matrix import matmul
from ...ops.shape.stacking import broadcast_shapes
from . import constraints
from .distribution import Distribution
from .utils import lazy_property, standard_normal

_LOG_TWO_PI = math.log(2 * math.pi)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors with mean `loc` (..., K) and one of three matrices (..., K, K).

    covariance_matrix; precision_matrix, its inverse; or scale_tril, the lower triangular L with
    covariance L @ L.mT, which is what the others are turned into.
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
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
        named = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: matrix for name, matrix in named.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch, event = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1]), loc.shape[-1:]
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        self.loc = loc.expand((*batch, *event))
        super().__init__(batch, event, validate_args=validate_args)

    @lazy_property
    def scale_tril(self) -> Tensor:
        if "covariance_matrix" in vars(self):
            return cholesky(self.covariance_matrix)
        # P = M @ M.mT with M upper triangular, from the factor of P in reverse order; then L is M.mT inverted.
        flipped = cholesky(self.precision_matrix.flip((-2, -1))).flip((-2, -1)).mT
        return solve_triangular(flipped, _identity_like(flipped), upper=False)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return matmul(self.scale_tril, self.scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return cholesky_inverse(self.scale_tril)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.pow(2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + matmul(self.scale_tril, eps.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return log(self.scale_tril.diagonal(dim1=-2, dim2=-1)).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = squared_mahalanobis(self.scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * _LOG_TWO_PI + distance) - self._half_log_det()

    def entropy(self) -> Tensor:
        return 0.5 * self._event_shape[0] * (1.0 + _LOG_TWO_PI) + self._half_log_det()


def squared_mahalanobis(scale_tril: Tensor, difference: Tensor) -> Tensor:
    """|L⁻¹ d|² for factors (..., K, K) and vectors (..., K), whose leading dimensions broadcast."""
    whitened = solve_triangular(scale_tril, difference.unsqueeze(-1), upper=False)
    return whitened.squeeze(-1).pow(2).sum(-1)


def _identity_like(matrix: Tensor) -> Tensor:
    return eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
