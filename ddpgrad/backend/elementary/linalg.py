"""Linear algebra on batches of matrices, and what the array libraries lack of it.

Where a matrix has no inverse, no factor or no solution, the result is nan throughout: the ops
tell from that which matrix is at fault, and others of the batch keep their results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ..dtype import NARROW
from ..registry import backend_for
from .arithmetic import in_float32

Array = Any

# Coefficients of the [13/13] Padé approximant of exp, and the 1-norm up to which it is exact to 2**-53.
# Higham, "The scaling and squaring method for the matrix exponential revisited", 2005, table 2.3.
_PADE = [
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
]  # fmt: skip
_PADE_RADIUS = 5.371920351148152

# What PyTorch says of infinities and NaN.
_OF_EIG = "torch.linalg.eig: input tensor should not contain infs or NaNs."
_OF_SVD = "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values."


def linear_algebra(xp: ModuleType) -> dict[str, Any]:
    library = xp.linalg

    def checked(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """function(...), which raises `LinAlgError` where it fails; on a GPU that waits for what cuSOLVER reports."""
        if xp.__name__ != "cupy":
            return function(*args, **options)
        with import_module("cupyx").errstate(linalg="raise"):
            return function(*args, **options)

    def finite(A: Array, said: str = _OF_SVD) -> Array:
        """A; `LinAlgError` for infinities and NaN on the host, where LAPACK's divide and conquer may never end with them."""
        if xp is np and not np.isfinite(A).all():
            raise np.linalg.LinAlgError(said)
        return A

    def or_nan(function: Callable[..., Array], *arrays: Array) -> Array:
        """function(*arrays) of batches of matrices; nan where it fails."""
        try:
            return checked(function, *arrays)
        except np.linalg.LinAlgError:
            if all(a.ndim == 2 for a in arrays):
                return xp.full_like(arrays[-1], math.nan)
        lead = np.broadcast_shapes(*[a.shape[:-2] for a in arrays])
        arrays = tuple(xp.broadcast_to(a, lead + a.shape[-2:]) for a in arrays)
        out = xp.empty_like(arrays[-1])
        for i in np.ndindex(*lead):
            out[i] = or_nan(function, *[a[i] for a in arrays])
        return out

    def inv(A: Array) -> Array:
        return or_nan(library.inv, A)

    def solve(A: Array, B: Array) -> Array:
        if xp.__name__ == "cupy" and A.shape[:-2] != B.shape[:-2]:  # which it does not broadcast
            lead = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
            A, B = (xp.broadcast_to(x, lead + x.shape[-2:]) for x in (A, B))
        return or_nan(library.solve, A, B)

    def cholesky(A: Array, upper: bool) -> Array:
        if upper:
            return or_nan(library.cholesky, A.swapaxes(-1, -2).conj()).swapaxes(-1, -2).conj()
        return or_nan(library.cholesky, A)

    def solve_triangular(A: Array, B: Array, upper: bool, unitriangular: bool = False) -> Array:
        """A is upper triangular after both its dimensions are reversed; then elimination finds nothing to do."""
        if unitriangular:
            n = A.shape[-1]
            A = xp.where(xp.eye(n, dtype=bool), xp.ones((), A.dtype), A)
        if upper:
            return solve(xp.triu(A), B)
        return solve(xp.triu(A[..., ::-1, ::-1]), B[..., ::-1, :])[..., ::-1, :]

    def qr(A: Array) -> tuple[Array, Array]:
        return tuple(library.qr(A, mode="reduced"))

    def complete_qr(A: Array) -> tuple[Array, Array]:
        return tuple(library.qr(A, mode="complete"))

    def geqrf(A: Array) -> tuple[Array, Array]:
        reflectors, tau = library.qr(A, mode="raw")
        return reflectors.swapaxes(-1, -2), tau

    def svd(A: Array, full_matrices: bool) -> tuple[Array, Array, Array]:
        return tuple(checked(library.svd, finite(A), full_matrices=full_matrices))

    def svdvals(A: Array) -> Array:
        return checked(library.svd, A, compute_uv=False)

    def eigh(A: Array, UPLO: str) -> tuple[Array, Array]:
        return tuple(checked(library.eigh, A, UPLO=UPLO))

    def eigvalsh(A: Array, UPLO: str) -> Array:
        return checked(library.eigvalsh, A, UPLO=UPLO)

    def eig(A: Array) -> tuple[Array, Array]:
        # Real where all eigenvalues of a batch happen to be; ours are always complex.
        values, vectors = library.eig(finite(A, _OF_EIG))
        dtype = np.result_type(A.dtype, np.complex64)
        return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)

    def eigvals(A: Array) -> Array:
        values = library.eigvals(finite(A, _OF_EIG))
        return values.astype(np.result_type(A.dtype, np.complex64), copy=False)

    def det(A: Array) -> Array:
        return library.det(A)

    def slogdet(A: Array) -> tuple[Array, Array]:
        return tuple(library.slogdet(A))

    def lu_factor(A: Array, pivot: bool) -> tuple[Array, Array, Array]:
        """L below and U on and above the diagonal; LAPACK's pivots; the rows of A in the order of L @ U."""
        out = xp.array(A, copy=True)
        m, n = A.shape[-2:]
        count = min(m, n)
        pivots = xp.zeros((*A.shape[:-2], count), xp.int32)
        rows = xp.broadcast_to(xp.arange(m), A.shape[:-1]).copy()
        for k in range(count):
            if pivot:
                best = xp.argmax(xp.abs(out[..., k:, k]), axis=-1)[..., None] + k
                pivots[..., k] = best[..., 0] + 1
                _swap(xp, out, k, best[..., None])
                _swap(xp, rows[..., None], k, best[..., None])
            else:
                pivots[..., k] = k + 1
            below = out[..., k + 1 :, k]
            head = out[..., k, k][..., None]
            below[...] = xp.where(head == 0, below, below / xp.where(head == 0, xp.ones((), A.dtype), head))
            out[..., k + 1 :, k + 1 :] -= below[..., None] * out[..., k, None, k + 1 :]
        return out, pivots, rows

    @in_float32
    def matrix_exp(A: Array) -> Array:
        if not A.size:
            return xp.array(A, copy=True)
        n = A.shape[-1]
        norms = xp.abs(A).sum(axis=-2).max(axis=-1)
        largest = float(norms.max())
        if not math.isfinite(largest):
            norms = xp.where(xp.isfinite(norms), norms, xp.zeros_like(norms))
            largest = float(norms.max())
        scale = xp.maximum(xp.ceil(xp.log2(xp.maximum(norms, 1e-30) / _PADE_RADIUS)), 0)[..., None, None]
        x = (A / 2.0**scale).astype(A.dtype, copy=False)
        even, odd = _pade(xp, x, xp.eye(n, dtype=A.dtype))
        out = solve(even - odd, even + odd)
        steps = max(0, math.ceil(math.log2(largest / _PADE_RADIUS))) if largest > 0 else 0
        for step in range(steps):
            out = xp.where(scale > step, xp.matmul(out, out), out)
        return out

    def lstsq(A: Array, B: Array, rcond: float) -> tuple[Array, Array, Array]:
        """Least-squares solutions, the ranks and the singular values of A, matrix by matrix."""
        lead = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        m, n = A.shape[-2:]
        A, B = xp.broadcast_to(A, (*lead, m, n)), xp.broadcast_to(B, lead + B.shape[-2:])
        A, B = finite(A), finite(B)
        solution = xp.empty((*lead, n, B.shape[-1]), A.dtype)
        rank = xp.empty(lead, xp.int64)
        values = xp.empty((*lead, min(m, n)), A.real.dtype)
        for i in np.ndindex(*lead):
            solution[i], _, rank[i], values[i] = library.lstsq(A[i], B[i], rcond=rcond)
        return solution, rank, values

    def eye_mask(input: Array, rows: int, columns: int) -> Array:
        return xp.eye(rows, columns, dtype=bool)

    return {
        "eye_mask": eye_mask, "inv": inv, "solve": solve, "cholesky_factor": cholesky, "solve_triangular": solve_triangular,
        "qr_factor": qr, "complete_qr": complete_qr, "geqrf_pair": geqrf, "svd_factor": svd, "svdvals": svdvals,
        "eigh_factor": eigh, "eigvalsh": eigvalsh, "eig_factor": eig, "eigvals": eigvals, "det": det,
        "slogdet_pair": slogdet, "lu_factor": lu_factor, "matrix_exp": matrix_exp, "lstsq_solution": lstsq,
    }  # fmt: skip


def _swap(xp: ModuleType, matrix: Array, k: int, other: Array) -> None:
    """Exchange row k with row `other` (..., 1, 1) of every matrix, in place."""
    index = xp.broadcast_to(other, (*matrix.shape[:-2], 1, matrix.shape[-1]))
    row = matrix[..., k : k + 1, :].copy()
    matrix[..., k : k + 1, :] = xp.take_along_axis(matrix, index, -2)
    xp.put_along_axis(matrix, index, row, -2)


def _pade(xp: ModuleType, x: Array, identity: Array) -> tuple[Array, Array]:
    """The even and the odd part of the approximant's numerator; its denominator is their difference."""
    square = xp.matmul(x, x)
    powers = [identity, square, xp.matmul(square, square)]
    powers.append(xp.matmul(powers[2], square))

    def polynomial(coefficients: list[int]) -> Array:
        """In the powers of the square, of which those from the third on have the third factored out."""
        low = sum(float(c) * p for c, p in zip(coefficients[:4], powers, strict=True))
        high = sum(float(c) * p for c, p in zip(coefficients[4:], powers[1:], strict=True))
        return low + xp.matmul(powers[3], high)

    return polynomial(_PADE[0::2]), xp.matmul(x, polynomial(_PADE[1::2]))


def matrices(xp: ModuleType) -> dict[str, Any]:
    def matmul(input: Array, other: Array) -> Array:
        if input.dtype.kind == "b":
            raise NotImplementedError(
                "matmul(): not implemented for bools; convert them with Tensor.to(dtype)"
            )
        if xp is np and input.dtype in NARROW:
            # NumPy has no fast product of 16-bit numbers, and would round every partial sum.
            F = backend_for(input)
            return F.cast(F.matmul(F.cast(input, np.float32), F.cast(other, np.float32)), input.dtype)
        return xp.matmul(input, other)

    return {"matmul": matmul}
