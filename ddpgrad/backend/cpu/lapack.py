"""What NumPy's linear algebra lacks, from LAPACK through SciPy: triangular solves and LU factors."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ...core import environment
from .threads import blas_threads, in_parts, set_threads

# Matrices up to this size, from so many on, are left to compiled code: SciPy takes microseconds for each.
_SMALL, _MANY = 32, 16


def _scipy_linalg() -> Any:
    """SciPy, whose BLAS is another library than NumPy's, with as many threads as the process has set."""
    count = blas_threads()
    module = import_module("scipy.linalg")
    set_threads(count)
    return module


get_lapack_funcs = _scipy_linalg().get_lapack_funcs


def _are_many_and_small(A: np.ndarray) -> bool:
    m, n = A.shape[-2:]
    small = max(m, n) <= _SMALL and A.size >= _MANY * m * n
    return small and A.dtype.char in "fd" and A.dtype.isnative and environment.numba_enabled()


def solve_triangular(A: np.ndarray, B: np.ndarray, upper: bool, unitriangular: bool = False) -> np.ndarray:
    """X with A @ X = B, where only one triangle of A is read; a zero on the diagonal gives inf or nan."""
    if not A.size or not B.size:
        return NotImplemented
    lead = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    A, B = np.broadcast_to(A, lead + A.shape[-2:]), np.broadcast_to(B, lead + B.shape[-2:])
    if A.dtype == B.dtype and _are_many_and_small(A):
        from . import small_factors  # Numba

        return small_factors.solve_triangular(A, B, upper, unitriangular)
    (trtrs,) = get_lapack_funcs(("trtrs",), (A, B))
    out = np.empty(B.shape, trtrs.dtype)

    def solve(_: int, __: int) -> None:
        for i in np.ndindex(*lead):
            # A matrix in C order is the transposed one in LAPACK's order, which saves a copy.
            a, lower, trans = (A[i], not upper, 0) if A[i].flags.f_contiguous else (A[i].T, upper, 1)
            out[i], info = trtrs(a, B[i], lower=lower, trans=trans, unitdiag=unitriangular)
            if info:
                out[i] = _substituted(A[i], B[i], upper)

    # BLAS's own threads take milliseconds for four rows where another program has the second core.
    in_parts(solve, 1, 0, blas=True)
    return out


def _substituted(A: np.ndarray, B: np.ndarray, upper: bool) -> np.ndarray:
    """Substitution row by row, which LAPACK refuses where the diagonal has a zero."""
    out = np.array(B)
    n = A.shape[-1]
    for i in range(n - 1, -1, -1) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        out[i] = (B[i] - A[i, known] @ out[known]) / A[i, i]
    return out


def lu_factor(A: np.ndarray, pivot: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """L below and U on and above the diagonal; LAPACK's pivots, from 1; the rows of A in the order of L @ U."""
    if not A.size or not pivot:
        return NotImplemented
    if _are_many_and_small(A):
        from . import small_factors

        return small_factors.lu_factor(A)
    (getrf,) = get_lapack_funcs(("getrf",), (A,))
    m, n = A.shape[-2:]
    out = np.empty(A.shape, getrf.dtype)
    pivots = np.empty((*A.shape[:-2], min(m, n)), np.int32)
    rows = np.empty(A.shape[:-1], np.int64)
    for i in np.ndindex(*A.shape[:-2]):
        out[i], swaps, _ = getrf(A[i])
        pivots[i] = swaps + 1
        order = list(range(m))
        for k, other in enumerate(swaps):
            order[k], order[other] = order[other], order[k]
        rows[i] = order
    return out, pivots, rows


def ldl_factor(A: np.ndarray, hermitian: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """L below and the blocks of D on the diagonal, LAPACK's pivots, and which element of D is zero, from 1."""
    (factor,) = get_lapack_funcs((_by_symmetry("trf", A, hermitian),), (A,))
    out = np.empty(A.shape, factor.dtype)
    pivots = np.empty(A.shape[:-1], np.int32)
    info = np.empty(A.shape[:-2], np.int32)
    for i in np.ndindex(*A.shape[:-2]):
        compact, pivots[i], info[i] = factor(A[i], lower=1)
        out[i] = np.tril(compact)
    return out, pivots, info


def ldl_solve(LD: np.ndarray, pivots: np.ndarray, B: np.ndarray, hermitian: bool) -> np.ndarray:
    """X with A @ X = B, from the factors and pivots of A that `ldl_factor` gives."""
    sizes = np.abs(pivots)  # negative ones belong to blocks of two rows
    if pivots.size and not 1 <= sizes.min() <= sizes.max() <= LD.shape[-1]:
        raise ValueError(
            f"pivots must be from 1 to {LD.shape[-1]} in size, got {sizes.min()} to {sizes.max()}"
        )
    (solve,) = get_lapack_funcs((_by_symmetry("trs", LD, hermitian),), (LD, B))
    lead = np.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    LD, B = np.broadcast_to(LD, lead + LD.shape[-2:]), np.broadcast_to(B, lead + B.shape[-2:])
    pivots = np.broadcast_to(pivots, lead + pivots.shape[-1:])
    out = np.empty(B.shape, solve.dtype)
    for i in np.ndindex(*lead):
        out[i], _ = solve(LD[i], pivots[i], B[i], lower=1)
    return out


def _by_symmetry(name: str, A: np.ndarray, hermitian: bool) -> str:
    """LAPACK's name of a function for symmetric matrices, or for Hermitian ones."""
    return ("he" if hermitian and A.dtype.kind == "c" else "sy") + name
