"""Transforms between real numbers and triangular or positive definite matrices."""

from __future__ import annotations

import math
from typing import Any

from .... import Tensor, clamp, diag_embed, finfo, tanh
from ....linalg import cholesky
from ....nn.functional import pad, softplus
from .. import constraints
from ..utils import matrix_size, tril_matrix_to_vec, vec_to_tril_matrix
from .base import Transform


class LowerCholeskyTransform(Transform):
    """Matrices (..., K, K) to lower triangular ones with a positive diagonal: its exponential, and what is below it."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + diag_embed(x.diagonal(dim1=-2, dim2=-1).exp())

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + diag_embed(y.diagonal(dim1=-2, dim2=-1).log())


class PositiveDefiniteTransform(Transform):
    """Matrices (..., K, K) to positive definite ones: L @ L.mT of the L that `LowerCholeskyTransform` makes of them."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(Transform):
    """K * (K - 1) / 2 numbers to the Cholesky factor (..., K, K) of a correlation matrix.

    The tanh of the numbers are partial correlations z, row by row. An entry of a row is z times the square root of what
    the squares before it left of the row's length 1, and the diagonal takes the rest. Source: Lewandowski, Kurowicka and
    Joe, Journal of Multivariate Analysis 100 (2009); https://mc-stan.org/docs/reference-manual/transforms.html
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = finfo(x.dtype).eps
        partial = vec_to_tril_matrix(clamp(tanh(x), min=-1 + eps, max=1 - eps), -1)
        left = (1 - partial.pow(2)).sqrt().cumprod(-1)
        ones = diag_embed(x.new_ones(partial.shape[:-1]))
        return (partial + ones) * pad(left[..., :-1], [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        left = tril_matrix_to_vec(pad(left[..., :-1], [1, 0], value=1.0), -1)
        partial = tril_matrix_to_vec(y, -1) / left.sqrt()
        return (partial.log1p() - (-partial).log1p()) / 2  # atanh

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        shares = 0.5 * tril_matrix_to_vec(left, -2).log().sum(-1)
        slopes = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(
            -1
        )  # log(1 - tanh(x)**2) without cancellation
        return shares + slopes

    def forward_shape(self, shape: Any) -> Any:
        if not shape:
            raise ValueError("Too few dimensions on input")
        size = matrix_size(shape[-1], -1)
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)
