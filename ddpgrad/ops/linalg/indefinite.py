"""LDL^T decompositions of symmetric matrices that need not be definite, and linear systems with them."""

from __future__ import annotations

from typing import Any

from ...backend import dtype as dtypes
from ...core import return_types
from ...core.tensor import Tensor
from ..creation import factories
from ..dispatch.declare import primitive
from ..dispatch.explain import no_rule
from ..dispatch.tensor_function import tensor_function
from .systems import raise_if_failed, require_square


@primitive(
    outputs=3, extras=("pivots", "info"), grads={"A": no_rule("linalg_ldl_factor_ex: self")}, method=False
)
def ldl_factor(F: Any, A: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """LAPACK's compact L and D of the lower triangles of A (..., n, n), its pivots, and which element of D is 0."""
    ...


@primitive(
    adapt=lambda LD, pivots, B, hermitian: (LD, getattr(pivots, "_array", pivots), B, hermitian),
    grads={"LD": no_rule("linalg_ldl_solve: LD"), "B": no_rule("linalg_ldl_solve: B")},
    method=False,
)
def ldl_solve(F: Any, LD: Tensor, pivots: Any, B: Tensor, hermitian: bool) -> Tensor:
    """X (..., n, k) with A @ X = B, from the factors and pivots of `ldl_factor`."""
    ...


@tensor_function(method=False, out=True)
def linalg_ldl_factor_ex(
    A: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> return_types.linalg_ldl_factor_ex:
    """(LD, pivots, info) of symmetric (with `hermitian`, Hermitian) A: L below the diagonal, the blocks of D on it.

    info: for each matrix 0, or which element of D is zero. There is no gradient, as in PyTorch.
    """
    return _factored("linalg.ldl_factor_ex", A, hermitian, check_errors)


@tensor_function(method=False, out=True)
def linalg_ldl_factor(A: Tensor, *, hermitian: bool = False) -> return_types.linalg_ldl_factor:
    """(LD, pivots): `linalg.ldl_factor_ex`, and an error for a matrix of which an element of D is zero."""
    factors = _factored("linalg.ldl_factor", A, hermitian, True)
    return return_types.linalg_ldl_factor(factors.LD, factors.pivots)


def _factored(name: str, A: Tensor, hermitian: bool, check_errors: bool) -> Any:
    require_square(name, A)
    if A.numel():
        LD, pivots, info = ldl_factor(A, hermitian)
    else:
        LD = factories.zeros_like(A)
        pivots = A.new_zeros(A.shape[:-1], dtype=dtypes.int32)
        info = A.new_zeros(A.shape[:-2], dtype=dtypes.int32)
    if check_errors:
        raise_if_failed(
            info, f"{name}: D[{{0}},{{0}}] is zero and using it on ldl_solve would divide by zero."
        )
    return return_types.linalg_ldl_factor_ex(LD, pivots, info)


@tensor_function(method=False, out=True)
def linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with A @ X = B (..., n, k), from what `linalg.ldl_factor(A)` has given."""
    require_square("linalg.ldl_solve", LD)
    if B.ndim < 2:
        raise RuntimeError(f"linalg.ldl_solve: B must have at least 2 dimensions, got shape {list(B.shape)}")
    if B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for linalg.ldl_solve: each A matrix is {LD.shape[-1]} by {LD.shape[-1]} but each "
            f"b matrix is {B.shape[-2]} by {B.shape[-1]}"
        )
    if B.dtype is not LD.dtype:
        raise RuntimeError(
            f"linalg.ldl_solve: LD and B must have one dtype, got {LD.dtype.name} and {B.dtype.name}"
        )
    if pivots.dtype.category != 1 or tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise RuntimeError(
            f"linalg.ldl_solve: expected integer pivots of shape {list(LD.shape[:-1])}, got {pivots.dtype.name} "
            f"{list(pivots.shape)}"
        )
    if not B.numel():
        return factories.zeros_like(B)
    return ldl_solve(LD, pivots, B, hermitian)
