"""The LKJ distribution of correlation matrices, by their Cholesky factors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, arange, diag_embed, finfo, lgamma, mvlgamma, no_grad, randn
from ...linalg import norm
from . import constraints
from .dirichlet import Beta
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors (..., dim, dim) of correlation matrices M, whose density goes with det(M)**(concentration - 1).

    dim: rows of the matrix, at least 2; ValueError for fewer. concentration: 1 makes all matrices as likely, more favours
    the identity. Draws by the onion method of Lewandowski, Kurowicka and Joe, Journal of Multivariate Analysis 100 (2009).
    """

    arg_constraints: ClassVar = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)
        # Of row k + 1, whose k numbers beside the diagonal are a point in a ball: the square of its distance from 0.
        row = arange(dim, dtype=self.concentration.dtype, device=self.concentration.device)
        earlier = (row - 1).clamp(min=0.0)
        first = self.concentration.unsqueeze(-1) + 0.5 * (dim - 2)
        self._beta = Beta(earlier + 0.5, first - 0.5 * earlier, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._beta = self._beta.expand((*batch_shape, self.dim))
        return new

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            square = self._beta.sample(sample_shape).unsqueeze(-1)
            like = self.concentration
            normal = randn(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device).tril(-1)
            direction = normal / norm(normal, dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0  # nothing stands left of the first diagonal entry
            rows = square.sqrt() * direction
            diagonal = (1 - rows.pow(2).sum(-1)).clamp(min=finfo(rows.dtype).tiny).sqrt()
            return rows + diag_embed(diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        """With respect to the entries of the factor: the density of M, times the Jacobian of M as a function of it."""
        self._check_sample(value)
        a, dim, beside = self.concentration, self.dim, self.dim - 1
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        row = arange(2, dim + 1, device=a.device)
        powers = 2 * (a - 1).unsqueeze(-1) + dim - row
        half = a + 0.5 * beside
        log_volume = 0.5 * beside * math.log(math.pi) + mvlgamma(half - 0.5, beside) - beside * lgamma(half)
        return (powers * diagonal.log()).sum(-1) - log_volume
