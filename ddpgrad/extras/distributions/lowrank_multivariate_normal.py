"""The normal distribution of vectors with a covariance of low rank, and a diagonal."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, broadcast_shapes, diag_embed, eye, log, matmul
from ...linalg import cholesky, solve_triangular
from . import constraints
from .covariance import squared_mahalanobis
from .distribution import Distribution
from .utils import lazy_property, same_as, standard_normal

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with mean `loc` (..., K) and covariance W @ W.mT + diag(D).

    cov_factor: W (..., K, M), with M much smaller than K. cov_diag: D (..., K), positive. ValueError where these shapes
    do not belong together. By the Woodbury identity what is decomposed is C = 1 + W.mT @ diag(1/D) @ W, of shape
    (..., M, M): the inverse of the covariance is diag(1/D) - diag(1/D) @ W @ C**-1 @ W.mT @ diag(1/D), and its
    determinant det(C) times the product of D.
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    mean: Any = same_as("loc")
    mode: Any = same_as("loc")

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.ndim < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
            )
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as e:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from e
        self.loc = loc.expand((*batch, *event))
        self.cov_diag = cov_diag.expand((*batch, *event))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, event, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        for name in ("scale_tril", "covariance_matrix", "precision_matrix", "_capacitance_tril"):
            vars(new).pop(name, None)  # made before, of this batch
        return new

    @lazy_property
    def _capacitance_tril(self) -> Tensor:
        """The Cholesky factor of C."""
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        return cholesky(matmul(scaled, self.cov_factor) + self._identity(self.cov_factor.shape[-1]))

    def _identity(self, size: int) -> Tensor:
        return eye(size, dtype=self.loc.dtype, device=self.loc.device)

    @lazy_property
    def variance(self) -> Tensor:
        return self.cov_factor.pow(2).sum(-1) + self.cov_diag

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular L with covariance L @ L.mT."""
        root = self.cov_diag.sqrt().unsqueeze(-1)
        scaled = self.cov_factor / root
        return root * cholesky(matmul(scaled, scaled.mT) + self._identity(self._event_shape[0]))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return matmul(self.cov_factor, self.cov_factor.mT) + diag_embed(self.cov_diag)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        half = solve_triangular(self._capacitance_tril, scaled, upper=False)
        return diag_embed(self.cov_diag.reciprocal()) - matmul(half.mT, half)

    def _log_det(self) -> Tensor:
        """Of the covariance."""
        return 2 * log(self._capacitance_tril.diagonal(dim1=-2, dim2=-1)).sum(-1) + log(self.cov_diag).sum(-1)

    def _squared_mahalanobis(self, difference: Tensor) -> Tensor:
        """d.T @ covariance**-1 @ d of vectors (..., K)."""
        projected = (self.cov_factor.mT @ (difference / self.cov_diag).unsqueeze(-1)).squeeze(-1)
        plain = (difference.pow(2) / self.cov_diag).sum(-1)
        return plain - squared_mahalanobis(self._capacitance_tril, projected)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        low = standard_normal((*shape[:-1], self.cov_factor.shape[-1]), self.loc)
        each = standard_normal(shape, self.loc)
        return self.loc + matmul(self.cov_factor, low.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * each

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        distance = self._squared_mahalanobis(value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
