"""Distributions with a covariance: one of three matrices is given, the others are computed."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import (
    Tensor,
    arange,
    broadcast_shapes,
    cholesky_inverse,
    diag_embed,
    digamma,
    eye,
    finfo,
    log,
    matmul,
    mvlgamma,
    randn,
    slogdet,
    tril_indices,
)
from ...linalg import cholesky, solve_triangular
from . import constraints
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .gamma import Chi2
from .utils import formula, lazy_property, same_as, standard_normal

_LOG_TWO_PI = math.log(2 * math.pi)


def _precision_to_scale_tril(P: Tensor) -> Tensor:
    """The lower triangular L of which L @ L.mT is the inverse of P."""
    # P = M @ M.mT with M upper triangular, from the factor of P in reverse order; then L is M.mT inverted.
    flipped = cholesky(P.flip((-2, -1))).flip((-2, -1)).mT
    identity = eye(flipped.shape[-1], dtype=flipped.dtype, device=flipped.device)
    return solve_triangular(flipped, identity, upper=False)


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

    def _keep_factor(self, name: str, matrix: Tensor) -> None:
        """Keep the factor of the matrix that was given, under the name by which libraries read and set it in PyTorch."""
        if name == "covariance_matrix":
            matrix = cholesky(matrix)
        elif name == "precision_matrix":
            matrix = _precision_to_scale_tril(matrix)
        self._unbroadcasted_scale_tril = matrix

    @lazy_property
    def scale_tril(self) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        return factor.expand((*self._batch_shape, *factor.shape[-2:]))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return matmul(self.scale_tril, self.scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return cholesky_inverse(self.scale_tril)

    def _half_log_det(self) -> Tensor:
        return log(self.scale_tril.diagonal(dim1=-2, dim2=-1)).sum(-1)


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
        self._keep_factor(name, matrix)

    mean: Any = same_as("loc")
    mode: Any = same_as("loc")
    variance: Any = formula(lambda self: self.scale_tril.pow(2).sum(-1))

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


class Wishart(CovarianceFamily, ExponentialFamily):
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
        self._keep_factor(name, matrix)

    @property
    def arg_constraints(self) -> Any:
        return {"df": constraints.greater_than(self._event_shape[-1] - 1), **CovarianceFamily.arg_constraints}

    def _per_matrix(self, values: Tensor) -> Tensor:
        """Values (...,) as factors of matrices (..., K, K)."""
        return values.reshape((*self._batch_shape, 1, 1))

    mean: Any = formula(lambda self: self._per_matrix(self.df) * self.covariance_matrix)

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

    _bartlett_sampling = rsample  # PyTorch's name of one draw, which peft calls

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

    _mean_carrier_measure: Any = 0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        size = self._event_shape[-1]
        half = y + (size + 1) / 2
        return half * (size * math.log(2) - slogdet(-2 * x)[1]) + mvlgamma(half, size)
