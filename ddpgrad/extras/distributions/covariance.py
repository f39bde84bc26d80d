"""What distributions with a covariance have in common: one of three matrices is given, the others are computed."""

from __future__ import annotations

from typing import ClassVar

from ... import Tensor, cholesky_inverse, eye, log, matmul
from ...linalg import cholesky, solve_triangular
from . import constraints
from .distribution import Distribution
from .utils import lazy_property


class CovarianceFamily(Distribution):
    """Base of distributions that are given one matrix (..., K, K).

    covariance_matrix; precision_matrix, its inverse; or scale_tril, the lower triangular L with
    covariance L @ L.mT, which is what the others are turned into.
    """

    arg_constraints: ClassVar = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }

    @staticmethod
    def _given(**matrices: Tensor | None) -> tuple[str, Tensor]:
        """The one of the three that is given, with its name."""
        given = {name: matrix for name, matrix in matrices.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        return name, matrix

    @lazy_property
    def scale_tril(self) -> Tensor:
        if "covariance_matrix" in vars(self):
            return cholesky(self.covariance_matrix)
        # P = M @ M.mT with M upper triangular, from the factor of P in reverse order; then L is M.mT inverted.
        flipped = cholesky(self.precision_matrix.flip((-2, -1))).flip((-2, -1)).mT
        identity = eye(flipped.shape[-1], dtype=flipped.dtype, device=flipped.device)
        return solve_triangular(flipped, identity, upper=False)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return matmul(self.scale_tril, self.scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return cholesky_inverse(self.scale_tril)

    def _half_log_det(self) -> Tensor:
        return log(self.scale_tril.diagonal(dim1=-2, dim2=-1)).sum(-1)
