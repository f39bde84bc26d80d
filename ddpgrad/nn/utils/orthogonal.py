"""Orthogonal weights as a parametrization."""

from __future__ import annotations

from ... import Tensor, cat, eye, finfo, geqrf, matrix_exp, no_grad, randn, zeros
from ...ops.linalg.householder import linalg_householder_product
from ...ops.linalg.systems import linalg_solve
from ..modules.module import Module
from . import parametrize

_MAPS = ("matrix_exp", "cayley", "householder")


def _signed(factors: Tensor, tau: Tensor) -> Tensor:
    """The orthogonal factor that `geqrf` found, with columns such that the other one has a positive diagonal."""
    return linalg_householder_product(factors, tau) * factors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _is_orthogonal(q: Tensor) -> bool:
    """Whether q^H q is the identity, to 10 k epsilon for k columns."""
    k = q.shape[-1]
    wrong = q.mH @ q - eye(k, dtype=q.dtype, device=q.device)
    return bool(wrong.abs().max() <= 10 * k * finfo(q.dtype).eps)


class _Orthogonal(Module):
    """A matrix with orthonormal columns (or rows, if it is wide), from one that is free.

    orthogonal_map: "matrix_exp" and "cayley" map the skew-symmetric part of the lower triangle,
    "householder" its columns as reflections. trivialize: the result is multiplied by a fixed
    orthogonal `base`, so that the map starts at the identity (https://arxiv.org/abs/1909.09501).
    """

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: str, trivialize: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if trivialize:
            self.register_buffer("base", None)

    def forward(self, weight: Tensor) -> Tensor:
        wide = weight.shape[-2] < weight.shape[-1]
        x = weight.mT if wide else weight
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            below = x.tril(-1)
            tau = 2.0 / (1.0 + below.square().sum(-2))
            q = linalg_householder_product(below, tau)
            q = q * x.diagonal(dim1=-2, dim2=-1).sign().detach().unsqueeze(-2)
        else:
            lower = x.tril()
            if n != k:
                lower = cat([lower, lower.new_zeros((*lower.shape[:-1], n - k))], -1)
            q = self._rotation(lower - lower.mH)
            q = q[..., :k]
        if "base" in self._buffers:
            q = self.base @ q
        return q.mT if wide else q

    def _rotation(self, skew: Tensor) -> Tensor:
        """The orthogonal matrix that a skew-symmetric one stands for."""
        if self.orthogonal_map == "matrix_exp":
            return matrix_exp(skew)
        identity = eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
        return linalg_solve(identity - 0.5 * skew, identity + 0.5 * skew)

    @no_grad()
    def right_inverse(self, value: Tensor) -> Tensor:
        """A free matrix that is mapped to `value`, which is made orthogonal if it is not."""
        if value.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {value.shape}."
            )
        wide = value.shape[-2] < value.shape[-1]
        q = value.mT if wide else value
        if "base" not in self._buffers:
            return self._reflections(q, wide)
        n, k = q.shape[-2:]
        if n != k:
            q = cat([q, randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)], -1)
        self.base = q.clone() if n == k and _is_orthogonal(q) else _signed(*geqrf(q))
        # What all maps take to the identity, since they look at the lower triangle only.
        free = zeros(*value.shape, dtype=q.dtype, device=q.device)
        free.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return free

    def _reflections(self, q: Tensor, wide: bool) -> Tensor:
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        free, tau = geqrf(q)
        diagonal = free.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        diagonal[tau == 0] *= -1
        return free.mT if wide else free


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a weight orthogonal: with orthonormal columns, or rows if it is wide; matrices of a batch each.

    orthogonal_map: "matrix_exp", "cayley" or "householder"; the first for square and complex weights,
    else the last by default. use_trivialization: relative to the weight as it is, made orthogonal, which
    lets any orthogonal matrix be assigned. Source: https://arxiv.org/abs/1909.09501
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        known = ", ".join(f'"{name}"' for name in _MAPS)
        raise ValueError(f"orthogonal_map has to be one of {known}. Got: {orthogonal_map}")
    chain = _Orthogonal(weight, orthogonal_map, use_trivialization)
    parametrize.register_parametrization(module, name, chain, unsafe=True)
    return module
