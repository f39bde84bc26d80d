"""Householder reflectors, as LAPACK's QR leaves them: the public functions."""

from __future__ import annotations

from ...core import return_types
from ...core.tensor import Tensor
from ..dispatch.tensor_function import tensor_function
from ..dispatch.vocabulary import VOCABULARY as F
from ..shape import shape
from . import decomposition_ops, matrix
from .adjoint import conj
from .matrix import nothing_of
from .systems import eye_like, require_matrix, require_one_dtype


@tensor_function(out=True)
def geqrf(input: Tensor) -> return_types.geqrf:
    """(a, tau): LAPACK's compact QR, with R on and above the diagonal and Householder vectors below."""
    require_matrix("geqrf", input, "input")
    return return_types.geqrf(*decomposition_ops.geqrf_pair(input))


def _reflected(vectors: Tensor, tau: Tensor, other: Tensor, forward: bool, conjugate: bool) -> Tensor:
    """The reflectors 1 - tau v v^H applied to `other` from the left, the first one first if `forward`."""
    m, n = vectors.shape[-2:]
    unit = F.tril(vectors, -1) + eye_like(vectors, m, n)
    factors = conj(tau) if conjugate else tau
    count = tau.shape[-1]
    for i in range(count) if forward else range(count - 1, -1, -1):
        v = shape.narrow(unit, -1, i, 1)
        factor = shape.unsqueeze(shape.narrow(factors, -1, i, 1), -1)
        other = other - matrix.matmul(factor * v, matrix.matmul(v.mH, other))
    return other


@tensor_function(method=False, out=True)
def linalg_householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first n columns (..., m, n) of the product of the reflectors that `geqrf` returned."""
    require_matrix("linalg.householder_product", A, "input")
    m, n = A.shape[-2:]
    if m < n or n < tau.shape[-1]:
        raise RuntimeError(
            f"torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1], and "
            f"that to tau.shape[-1], got {list(A.shape)} and {list(tau.shape)}"
        )
    require_one_dtype("torch.linalg.householder_product", input=A, tau=tau)
    if tuple(tau.shape[:-1]) != tuple(A.shape[:-2]):
        raise RuntimeError(
            f"torch.linalg.householder_product: Expected batch dimensions of tau to be equal to input.shape[:-2], but "
            f"got {list(tau.shape[:-1])}"
        )
    return _reflected(A, tau, eye_like(A, m, n) + nothing_of(A), forward=False, conjugate=False)


@tensor_function(out=True, names={"input2": "tau"})
def orgqr(input: Tensor, tau: Tensor) -> Tensor:
    """The same as `linalg.householder_product`."""
    return linalg_householder_product(input, tau)


@tensor_function(out=True, names={"input2": "tau", "input3": "other"})
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q @ other, or other @ Q without `left`, with Q (or its adjoint) from the reflectors that `geqrf` returned."""
    require_matrix("ormqr", input, "input")
    require_matrix("ormqr", other, "other")
    if other.shape[-2 if left else -1] != input.shape[-2]:
        raise RuntimeError(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2], got "
            f"{list(other.shape)} and {list(input.shape)}"
        )
    lead = tuple(input.shape[:-2])
    reflectors = min(input.shape[-2:])
    if tuple(tau.shape) != (*lead, reflectors) or tuple(other.shape[:-2]) != lead:
        raise RuntimeError(
            f"torch.ormqr: for input {list(input.shape)} expected tau {[*lead, reflectors]} and other with batch dimensions "
            f"{list(lead)}, but got {list(tau.shape)} and {list(other.shape)}"
        )
    if left:
        return _reflected(input, tau, other, forward=transpose, conjugate=transpose)
    # other Q = (Q^H other^H)^H
    return _reflected(input, tau, other.mH, forward=not transpose, conjugate=not transpose).mH
