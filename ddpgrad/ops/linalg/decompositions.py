"""Decompositions of matrices: the public functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autograd.grad_mode import mode
from ...backend.registry import backend_for
from ...core import return_types
from ...core.tensor import Tensor, wrap
from ..dispatch.declare import op
from ..dispatch.tensor_function import tensor_function
from ..dispatch.vocabulary import VOCABULARY as F
from ..shape import shape
from . import decomposition_ops, inverse_ops, matrix, spectral_ops
from .adjoint import adjoint, conj
from .systems import (
    eye_like,
    failed_minors,
    raise_if_failed,
    require_matrix,
    require_one_dtype,
    require_square,
    transposed,
)

# -- Cholesky --------------------------------------------------------------------------------------


def _cholesky(name: str, A: Tensor, upper: bool, check_errors: bool) -> tuple[Tensor, Tensor]:
    require_square(name, A)
    out = decomposition_ops.cholesky_factor(A, upper)
    info = failed_minors(A.detach().mH if upper else A, out)
    if check_errors:
        raise_if_failed(
            info,
            f"{name}: The factorization could not be completed because the input is not positive-definite (the "
            f"leading minor of order {{0}} is not positive-definite; the shape is {list(A.shape)}).",
        )
    return out, info


@tensor_function(method=False, out=True)
def linalg_cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False
) -> return_types.linalg_cholesky_ex:
    """(L, info): as `linalg.cholesky`, and for each matrix 0, or the order of the leading minor that is not positive."""
    return return_types.linalg_cholesky_ex(*_cholesky("linalg.cholesky_ex", A, upper, check_errors))


@tensor_function(method=False, out=True)
def linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L with L @ L^H = A, or U with U^H @ U = A; `LinAlgError` where A is not positive-definite."""
    return _cholesky("linalg.cholesky", A, upper, True)[0]


@tensor_function(out=True)
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The same as `linalg.cholesky`."""
    return _cholesky("cholesky", input, upper, True)[0]


def _adapt_cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> tuple[Any, ...]:
    require_matrix("cholesky_solve", input, "b")
    require_square("cholesky_solve", L, "A")
    if input.shape[-2] != L.shape[-1]:
        raise RuntimeError(
            f"cholesky_solve: Incompatible matrix sizes: each A matrix is {L.shape[-1]} by {L.shape[-1]} but each b "
            f"matrix is {input.shape[-2]} by {input.shape[-1]}"
        )
    require_one_dtype("cholesky_solve", b=input, A=L)
    return input, L, upper


def _cholesky_solve_rule(F: Any, g: Any, needs: Any, input2: Any, out: Any, upper: bool) -> tuple[Any, Any]:
    """As PyTorch has it, the gradient of the factor L is that of all of L @ L^H, not of the triangle alone."""
    grad_b = F.cholesky_solve(g, input2, upper)
    if not needs[1]:
        return grad_b, None
    product = F.matmul(grad_b, adjoint(F, out))
    product = -(product + adjoint(F, product))
    return grad_b, F.matmul(input2, product) if upper else F.matmul(product, input2)


@op(
    joint=_cholesky_solve_rule,
    holomorphic=False,
    adapt=_adapt_cholesky_solve,
    reference=lambda b, L, upper=False: np.linalg.solve(L.T @ L if upper else L @ L.T, b),
    grad_name="CholeskySolveBackward0",
)
def cholesky_solve(F: Any, input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X with A @ X = input (..., n, k), where A is given by its Cholesky factor `input2`."""
    lower = adjoint(F, input2) if upper else input2
    return F.solve_triangular(adjoint(F, lower), F.solve_triangular(lower, input, False), True)


@tensor_function(out=True)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, which is given by its Cholesky factor."""
    require_square("cholesky_inverse", L, "L")
    zero = F.diagonal(L.detach(), 0, -2, -1) == 0
    raise_if_failed(
        _first_of(zero),
        "cholesky_inverse: The diagonal element {0} is zero, the inversion could not be completed because the input "
        "matrix is singular.",
    )
    return cholesky_solve(eye_like(L, L.shape[-1]), L, upper)


# -- LU --------------------------------------------------------------------------------------------


def _lu_factor(name: str, A: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(LU, pivots, rows, info)."""
    require_matrix(name, A)
    compact, pivots, rows = decomposition_ops.lu_factor(A, pivot)
    return compact, pivots, rows, _first_of(F.diagonal(compact.detach(), 0, -2, -1) == 0)


def _first_of(found: Tensor) -> Tensor:
    """The place of the first True of each row, counted from 1; 0 where there is none."""
    any_found = found.any(-1)
    return F.where(any_found, F.argmax(found.int(), -1) + 1 if found.shape[-1] else any_found, 0).int()


@tensor_function(method=False, out=True)
def linalg_lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> return_types.linalg_lu_factor_ex:
    """(LU, pivots, info): as `linalg.lu_factor`, and for each matrix 0, or which diagonal element of U is zero."""
    compact, pivots, _, info = _lu_factor("linalg.lu_factor_ex", A, pivot)
    if check_errors:
        raise_if_failed(info, _ZERO_PIVOT)
    return return_types.linalg_lu_factor_ex(compact, pivots, info)


_ZERO_PIVOT = (
    "torch.linalg.lu_factor: U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you "
    "still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
)


@tensor_function(method=False, out=True)
def linalg_lu_factor(A: Tensor, *, pivot: bool = True) -> return_types.linalg_lu_factor:
    """(LU, pivots) in LAPACK's compact form: L below, U on and above the diagonal; row i was swapped with pivots[i]."""
    compact, pivots, _, info = _lu_factor("linalg.lu_factor", A, pivot)
    raise_if_failed(info, _ZERO_PIVOT)
    return return_types.linalg_lu_factor(compact, pivots)


@tensor_function(out=True)
def lu(input: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """(LU, pivots), and with `get_infos` which diagonal elements of U are zero."""
    compact, pivots, _, info = _lu_factor("lu", input, pivot)
    return (compact, pivots, info) if get_infos else (compact, pivots)


def _unpacked(compact: Tensor) -> tuple[Tensor, Tensor]:
    m, n = compact.shape[-2:]
    k = min(m, n)
    lower = F.tril(shape.narrow(compact, -1, 0, k), -1) + eye_like(compact, m, k)
    return lower, F.triu(shape.narrow(compact, -2, 0, k))


def _permutation(rows: Tensor, like: Tensor) -> Tensor:
    """The matrices P with P[rows[i], i] = 1."""
    count = rows.shape[-1]
    numbers = wrap(np.arange(count)).to(rows.device)
    return F.cast(F.eq(shape.unsqueeze(rows, -2), shape.unsqueeze(numbers, -1)), like.dtype)


def _rows_of(pivots: Tensor, count: int) -> Tensor:
    """LAPACK's exchanges, counted from 1, as the order of the rows."""
    if pivots.is_meta:
        return pivots.new_empty((*pivots.shape[:-1], count), dtype=int)
    swaps = Tensor.numpy(pivots, force=True).astype(np.int64) - 1
    if swaps.size and not 0 <= swaps.min() <= swaps.max() < count:
        raise RuntimeError(
            f"pivots must be between 1 and {count}, got values from {swaps.min() + 1} to {swaps.max() + 1}"
        )
    rows = np.broadcast_to(np.arange(count), (*swaps.shape[:-1], count)).copy()
    for k in range(swaps.shape[-1]):
        other = swaps[..., k : k + 1]
        here = rows[..., k : k + 1].copy()
        rows[..., k : k + 1] = np.take_along_axis(rows, other, -1)
        np.put_along_axis(rows, other, here, -1)
    return wrap(rows).to(pivots.device)


@tensor_function(method=False, out=True)
def linalg_lu(A: Tensor, *, pivot: bool = True) -> return_types.linalg_lu:
    """(P, L, U) with A = P @ L @ U; without `pivot` P is empty."""
    compact, _, rows, _ = _lu_factor("linalg.lu", A, pivot)
    lower, upper = _unpacked(compact)
    permutation = _permutation(rows, A) if pivot else _empty(A)
    return return_types.linalg_lu(permutation, lower, upper)


def _empty(like: Tensor) -> Tensor:
    return wrap(backend_for(like._array).full((0,), 0, like.dtype)).to(like.device)


@tensor_function(method=False, out=True)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> return_types.lu_unpack:
    """(P, L, U) of what `linalg.lu_factor` returned; what is not asked for is empty."""
    if LU_pivots.dtype.name != "int32":
        raise RuntimeError(
            f"torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype, got "
            f"{LU_pivots.dtype.name}. Note: this function is intended to be used with the output produced by "
            "torch.linalg.lu_factor"
        )
    lower, upper = _unpacked(LU_data) if unpack_data else (_empty(LU_data), _empty(LU_data))
    P = _permutation(_rows_of(LU_pivots, LU_data.shape[-2]), LU_data) if unpack_pivots else _empty(LU_data)
    return return_types.lu_unpack(P, lower, upper)


@tensor_function(method=False, out=True)
def linalg_lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X with A @ X = B, or X @ A = B without `left`, for A (or its adjoint) as `linalg.lu_factor` returned it."""
    require_square("linalg.lu_solve", LU, "LU")
    require_matrix("linalg.lu_solve", B, "B")
    if LU.shape[-1] != B.shape[-2 if left else -1]:
        raise RuntimeError(
            f"linalg.lu_solve: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({LU.shape[-2]}x{LU.shape[-1]} and {B.shape[-2]}x{B.shape[-1]})"
        )
    require_one_dtype("linalg.lu_solve", LU=LU, B=B)
    if pivots.dtype.name != "int32":
        raise RuntimeError(
            f"linalg.lu_solve: pivots should be a Tensor of type torch.int32, got {pivots.dtype.name}"
        )
    if pivots.shape != LU.shape[:-1]:
        raise RuntimeError(
            f"linalg.lu_solve: expected a pivot for each row of LU {list(LU.shape)}, but got pivots of shape {list(pivots.shape)}"
        )
    if not left:  # X A = B is A^H X^H = B^H
        return conj(transposed(linalg_lu_solve(LU, pivots, conj(transposed(B)), adjoint=not adjoint)))
    permutation = _permutation(_rows_of(pivots, LU.shape[-1]), LU)
    if not adjoint:
        middle = inverse_ops.solve_triangular(LU, matrix.matmul(transposed(permutation), B), False, True)
        return inverse_ops.solve_triangular(LU, middle, True)
    turned = conj(transposed(LU))
    middle = inverse_ops.solve_triangular(turned, B, False)
    return matrix.matmul(permutation, inverse_ops.solve_triangular(turned, middle, True, True))


@tensor_function(out=True)
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X with A @ X = b, for A as `linalg.lu_factor` returned it."""
    return linalg_lu_solve(LU_data, LU_pivots, b)


# -- QR ----------------------------------------------------------------------------------------------


@tensor_function(method=False, out=True)
def linalg_qr(A: Tensor, mode: str = "reduced") -> return_types.linalg_qr:
    """(Q, R) with A = Q @ R: 'reduced', 'complete' (Q square) or 'r' (Q empty)."""
    require_matrix("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    m, n = A.shape[-2:]
    if mode == "complete" and m > n:
        return return_types.linalg_qr(*decomposition_ops.complete_qr(A))
    if m >= n:
        Q, R = decomposition_ops.qr_factor(A)
    else:
        # The reflections come from the square part alone; its rule is then the only one needed.
        Q, square = decomposition_ops.qr_factor(shape.narrow(A, -1, 0, m))
        R = F.cat([square, matrix.matmul(Q.mH, shape.narrow(A, -1, m, n - m))], -1)
    return return_types.linalg_qr(_empty(A) if mode == "r" else Q, R)


@tensor_function(out=True)
def qr(input: Tensor, some: bool = True) -> return_types.qr:
    """(Q, R) with input = Q @ R; without `some` Q is square."""
    return return_types.qr(*linalg_qr(input, "reduced" if some else "complete"))


# -- singular values -----------------------------------------------------------------------------------


def _check_driver(name: str, A: Tensor, driver: str | None) -> None:
    if driver is not None and not A.is_cuda:
        raise RuntimeError(f"torch.{name}: keyword argument `driver=` is only supported on CUDA inputs")


@tensor_function(method=False, out=True)
def linalg_svd(
    A: Tensor, full_matrices: bool = True, *, driver: str | None = None
) -> return_types.linalg_svd:
    """(U, S, Vh) with A = U @ diag(S) @ Vh, S descending. `driver` chooses among CUDA's algorithms."""
    require_matrix("linalg.svd", A)
    _check_driver("linalg.svd", A, driver)
    return return_types.linalg_svd(*spectral_ops.svd_factor(A, full_matrices))


@tensor_function(method=False, out=True)
def linalg_svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values, descending."""
    require_matrix("linalg.svdvals", A)
    _check_driver("linalg.svdvals", A, driver)
    if A.requires_grad and mode.enabled:
        return spectral_ops.svd_factor(A, False)[1]
    return spectral_ops.svdvals(A)


@tensor_function(out=True)
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> return_types.svd:
    """(U, S, V) with input = U @ diag(S) @ V^H; without `compute_uv` U and V are zero."""
    require_matrix("svd", input, "input")
    if not compute_uv:
        m, n = input.shape[-2:]
        zeros = [
            wrap(backend_for(input._array).full((*input.shape[:-2], k, k), 0, input.dtype)) for k in (m, n)
        ]
        return return_types.svd(zeros[0].to(input.device), linalg_svdvals(input), zeros[1].to(input.device))
    U, S, Vh = spectral_ops.svd_factor(input, not some)
    return return_types.svd(U, S, Vh.mH)


# -- eigenvalues -----------------------------------------------------------------------------------------


def _require_triangle(name: str, UPLO: str) -> str:
    if str(UPLO).upper() not in ("L", "U"):
        raise RuntimeError(f"{name}: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper()


@tensor_function(method=False, out=True)
def linalg_eigh(A: Tensor, UPLO: str = "L") -> return_types.linalg_eigh:
    """(eigenvalues, eigenvectors) of symmetric or Hermitian matrices, ascending; one triangle is read."""
    require_square("linalg.eigh", A)
    return return_types.linalg_eigh(*spectral_ops.eigh_factor(A, _require_triangle("linalg.eigh", UPLO)))


@tensor_function(method=False, out=True)
def linalg_eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric or Hermitian matrices, ascending."""
    require_square("linalg.eigvalsh", A)
    triangle = _require_triangle("linalg.eigvalsh", UPLO)
    if A.requires_grad and mode.enabled:
        return spectral_ops.eigh_factor(A, triangle)[0]
    return spectral_ops.eigvalsh(A, triangle)


@tensor_function(method=False, out=True)
def linalg_eig(A: Tensor) -> return_types.linalg_eig:
    """(eigenvalues, eigenvectors), complex, of any square matrices; the vectors have norm 1."""
    require_square("linalg.eig", A)
    return return_types.linalg_eig(*spectral_ops.eig_factor(A))


@tensor_function(method=False, out=True)
def linalg_eigvals(A: Tensor) -> Tensor:
    """The complex eigenvalues of any square matrices."""
    require_square("linalg.eigvals", A)
    if A.requires_grad and mode.enabled:
        return spectral_ops.eig_factor(A)[0]
    return spectral_ops.eigvals(A)
