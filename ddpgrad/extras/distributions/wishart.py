"""The Wishart distribution."""

from __future__ import annotations

import math
from typing import Any

from ... import (
    Tensor,
    arange,
    broadcast_shapes,
    diag_embed,
    digamma,
    finfo,
    matmul,
    mvlgamma,
    randn,
    slogdet,
    tril_indices,
)
from . import constraints
from .chi2 import Chi2
from .covariance import CovarianceFamily


class Wishart(CovarianceFamily):
    """Matrices (..., K, K): sums of `df` outer products of normal vectors with one of three matrices (..., K, K).

    df: degrees of freedom, more than K - 1, a number or (...,). A draw with df < K may be singular, and is not drawn again.
    """

    support = constraints.positive_definite
    has_rsample = True

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = self._given(
            covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
        degrees = df if isinstance(df, Tensor) else matrix.new_tensor(df)
        batch, event = broadcast_shapes(matrix.shape[:-2], degrees.shape), matrix.shape[-2:]
        if bool((degrees <= event[-1] - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}.")
        setattr(self, name, matrix.expand((*batch, *event)))
        self.df = degrees.expand(batch)
        super().__init__(batch, event, validate_args=validate_args)

    @property
    def arg_constraints(self) -> Any:
        return {"df": constraints.greater_than(self._event_shape[-1] - 1), **CovarianceFamily.arg_constraints}

    def _per_matrix(self, values: Tensor) -> Tensor:
        """Values (...,) as factors of matrices (..., K, K)."""
        return values.reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Tensor:
        return self._per_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        return self._per_matrix(factor.masked_fill(factor <= 0, math.nan)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._per_matrix(self.df) * (covariance.pow(2) + outer)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """By Bartlett's decomposition: a triangle of chi and of normal numbers, times its transpose."""
        size, shape = self._event_shape[-1], self._extended_shape(sample_shape)[:-2]
        like = self.scale_tril
        freedom = self.df.unsqueeze(-1) - arange(size, dtype=like.dtype, device=like.device)
        chi = Chi2(freedom, validate_args=False).rsample(sample_shape).sqrt()
        triangle = diag_embed(chi.clamp(min=finfo(like.dtype).eps), dim1=-2, dim2=-1)
        rows, columns = tril_indices(size, size, -1)
        triangle[..., rows, columns] = randn((*shape, len(rows)), dtype=like.dtype, device=like.device)
        factor = matmul(like, triangle)
        return matmul(factor, factor.mT)

    def _log_volume(self) -> Tensor:
        return self._event_shape[-1] * math.log(2) / 2 + self._half_log_det()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        size = self._event_shape[-1]
        trace = matmul(self.precision_matrix, value).diagonal(dim1=-2, dim2=-1).sum(-1)
        above = (self.df - size - 1) / 2 * slogdet(value)[1]
        return above - self.df * self._log_volume() - mvlgamma(self.df / 2, size) - trace / 2

    def entropy(self) -> Tensor:
        size, half = self._event_shape[-1], self.df / 2
        steps = arange(size, dtype=half.dtype, device=half.device) / 2
        digammas = digamma(half.unsqueeze(-1) - steps).sum(-1)
        constant = (size + 1) * self._log_volume() + mvlgamma(half, size) + half * size
        return constant - (self.df - size - 1) / 2 * digammas
