"""Cholesky, LU and QR decompositions: kernels with their gradient rules.

The public functions are in `decompositions.py`. Rules: Walter and Lehmann, "Algorithmic differentiation of linear
algebra functions", 2010; Seeger et al., "Auto-differentiating linear algebra", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import primitive
from .adjoint import adjoint, diagonal, real_part, transposed


@primitive(
    samples=lambda rng: [((np.zeros(2), 2, 3), {})],
    reference=lambda x, rows, columns: np.eye(rows, columns, dtype=bool),
    method=False,
)
def eye_mask(F: Any, input: Tensor, rows: int, columns: int) -> Tensor:
    """True on the diagonal of a (rows, columns) matrix, on the device of `input`."""
    ...


def with_diagonal(F: Any, x: Any, values: Any) -> Any:
    """Square matrices x with their diagonals replaced by `values` (..., n)."""
    n = x.shape[-1]
    return F.where(F.eye_mask(x, n, n), F.unsqueeze(F.cast(values, x.dtype), -1), x)


# -- Cholesky ------------------------------------------------------------------------------------


def _cholesky_rule(F: Any, g: Any, out: Any, upper: bool) -> Any:
    lower, grad = (adjoint(F, out), adjoint(F, g)) if upper else (out, g)
    inner = F.tril(F.matmul(adjoint(F, lower), grad))
    inner = (inner + adjoint(F, F.tril(inner, -1))) * 0.5
    right = F.solve_triangular(adjoint(F, lower), inner, True)  # L^-H inner
    return adjoint(F, F.solve_triangular(adjoint(F, lower), adjoint(F, right), True))


@primitive(
    grads={"A": _cholesky_rule}, method=False, holomorphic=False, grad_name="LinalgCholeskyExBackward0"
)
def cholesky_factor(F: Any, A: Tensor, upper: bool) -> Tensor:
    """The triangular L with L @ L^H = A, or U with U^H @ U = A; that triangle of A is read.

    nan where A is not positive-definite.
    """
    ...


# -- LU ------------------------------------------------------------------------------------------


def _lu_rule(F: Any, g: Any, out: Any, rows: Any) -> Any:
    m, n = out.shape[-2:]
    k = min(m, n)

    def head(x: Any) -> Any:
        return F.narrow(F.narrow(x, len(x.shape) - 2, 0, k), len(x.shape) - 1, 0, k)

    square, grad = head(out), head(g)
    last = len(out.shape) - 1
    lower = with_diagonal(F, F.tril(square), F.full_like(diagonal(F, square), 1))
    upper = F.triu(square)
    lower_t, upper_t = transposed(F, lower), transposed(F, upper)
    grad_lower, grad_upper = grad, grad
    rest = None
    if n > k:  # U2 = L^-1 B2, where B2 is what lies right of the square
        rest = F.solve_triangular(lower_t, F.narrow(g, last, k, n - k), True, True)
        grad_lower = grad_lower - F.matmul(rest, transposed(F, F.narrow(out, last, k, n - k)))
    elif m > k:  # L2 = B2 U^-1, where B2 is what lies below the square
        right = F.solve_triangular(upper, transposed(F, F.narrow(g, last - 1, k, m - k)), True)
        rest = transposed(F, right)
        grad_upper = grad_upper - F.matmul(transposed(F, F.narrow(out, last - 1, k, m - k)), rest)
    inner = F.tril(F.matmul(lower_t, grad_lower), -1) + F.triu(F.matmul(grad_upper, upper_t))
    inner = F.solve_triangular(lower_t, inner, True, True)
    inner = transposed(F, F.solve_triangular(upper, transposed(F, inner), True))
    if rest is not None:
        inner = F.cat([inner, rest], last if n > k else last - 1)
    # Row i of this belongs to row rows[i] of A.
    index = F.expand(F.unsqueeze(F.argsort(rows, -1), -1), tuple(out.shape))
    return F.gather(inner, last - 1, index)


@primitive(
    grads={"A": _lu_rule},
    outputs=3,
    extras=("pivots", "rows"),
    samples=lambda rng: [
        ((rng.standard_normal((3, 3)), True), {}),
        ((rng.standard_normal((2, 4, 2)), True), {}),
        ((rng.standard_normal((2, 4)), True), {}),
        ((rng.standard_normal((3, 3)) + 3 * np.eye(3), False), {}),
    ],
    reference=lambda A, pivot: _np_lu(A, pivot),
    method=False,
    grad_name="LinalgLuFactorExBackward0",
)
def lu_factor(F: Any, A: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    """LAPACK's compact L and U of A (..., m, n), its pivots, counted from 1, and the rows of A in the order of L @ U."""
    ...


def _np_lu(A: Any, pivot: bool) -> tuple[Any, ...]:
    """Elimination as textbooks have it, matrix by matrix."""
    if A.ndim > 2:
        return tuple(np.stack(x) for x in zip(*[_np_lu(a, pivot) for a in A], strict=True))
    out, rows, pivots = A.copy(), np.arange(len(A)), []
    for k in range(min(A.shape)):
        p = k + int(np.argmax(np.abs(out[k:, k]))) if pivot else k
        pivots.append(p + 1)
        out[[k, p]], rows[[k, p]] = out[[p, k]], rows[[p, k]]
        for i in range(k + 1, len(A)):
            out[i, k] /= out[k, k]
            out[i, k + 1 :] -= out[i, k] * out[k, k + 1 :]
    return out, np.array(pivots, np.int32), rows


# -- QR ------------------------------------------------------------------------------------------


def _qr_rule(F: Any, g: Any, out: Any, R: Any) -> Any:
    """For m >= n; of a wide matrix `decompositions.py` decomposes the square part."""
    grad_q, grad_r = g
    inner = None
    if grad_r is not None:
        inner = F.matmul(R, adjoint(F, grad_r))
    if grad_q is not None:
        part = F.matmul(adjoint(F, grad_q), out)
        inner = -part if inner is None else inner - part
    if inner is None:
        return None
    low = F.tril(inner, -1)
    symmetric = with_diagonal(F, low + adjoint(F, low), real_part(F, diagonal(F, inner)))
    total = F.matmul(out, symmetric)
    if grad_q is not None:
        total = total + grad_q
    # total R^-H
    return adjoint(F, F.solve_triangular(R, adjoint(F, total), True))


@primitive(
    grads={"A": _qr_rule},
    holomorphic=False,
    outputs=2,
    extras=("R",),
    differentiable=2,
    samples=lambda rng: [((rng.standard_normal((3, 3)),), {}), ((rng.standard_normal((2, 4, 2)),), {})],
    reference=np.linalg.qr,
    method=False,
    grad_name="LinalgQrBackward0",
)
def qr_factor(F: Any, A: Tensor) -> tuple[Tensor, Tensor]:
    """Q (..., m, k) and R (..., k, n) of A (..., m, n), k = min(m, n)."""
    ...


def _complete_qr_rule(F: Any, g: Any) -> Any:
    raise RuntimeError(
        "The QR decomposition is not differentiable when mode='complete' and nrows > ncols: the columns of Q beyond "
        "ncols are not determined. Use mode='reduced'."
    )


@primitive(
    grads={"A": _complete_qr_rule},
    outputs=2,
    extras=("R",),
    differentiable=2,
    reference=lambda A: np.linalg.qr(A, mode="complete"),
    method=False,
    grad_name="LinalgQrBackward0",
)
def complete_qr(F: Any, A: Tensor) -> tuple[Tensor, Tensor]:
    """Q (..., m, m) and R (..., m, n) of A (..., m, n)."""
    ...


@primitive(
    outputs=2,
    extras=("tau",),
    samples=lambda rng: [((rng.standard_normal((4, 2)),), {})],
    reference=lambda A: (np.linalg.qr(A, mode="raw")[0].T, np.linalg.qr(A, mode="raw")[1]),
    method=False,
    grad_name="GeqrfBackward0",
)
def geqrf_pair(F: Any, input: Tensor) -> tuple[Tensor, Tensor]:
    """R and, below the diagonal, the Householder vectors of A (..., m, n), with their factors."""
    ...
