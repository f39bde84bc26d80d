"""Factorizations of matrices: kernels with their gradient rules.

The public functions are in `systems.py`. Rules: Giles, "Collected matrix derivative results",
2008; Walter and Lehmann, "Algorithmic differentiation of linear algebra functions", 2010;
Townsend, "Differentiating the singular value decomposition", 2016; Seeger et al.,
"Auto-differentiating linear algebra", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import primitive
from .adjoint import adjoint, diagonal, is_complex, real_part, transposed


@primitive(
    samples=lambda rng: [((np.zeros(2), 2, 3), {})],
    reference=lambda x, rows, columns: np.eye(rows, columns, dtype=bool),
    method=False,
)
def eye_mask(F: Any, input: Tensor, rows: int, columns: int) -> Tensor:
    """True on the diagonal of a (rows, columns) matrix, on the device of `input`."""
    ...


def _with_diagonal(F: Any, x: Any, values: Any) -> Any:
    """Square matrices x with their diagonals replaced by `values` (..., n)."""
    n = x.shape[-1]
    return F.where(F.eye_mask(x, n, n), F.unsqueeze(F.cast(values, x.dtype), -1), x)


def _differences(F: Any, values: Any) -> Any:
    """values[j] - values[i] at (i, j), with 1 on the diagonal."""
    apart = F.unsqueeze(values, -2) - F.unsqueeze(values, -1)
    return _with_diagonal(F, apart, F.full_like(values, 1))


def _spread_diagonal(F: Any, values: Any) -> Any:
    """Diagonal matrices (..., n, n) of `values` (..., n)."""
    n = values.shape[-1]
    return _with_diagonal(F, F.expand(F.unsqueeze(F.full_like(values, 0), -1), (*values.shape, n)), values)


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
    lower = _with_diagonal(F, F.tril(square), F.full_like(diagonal(F, square), 1))
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
    """For m >= n; of a wide matrix `systems.py` factors the square part."""
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
    symmetric = _with_diagonal(F, low + adjoint(F, low), real_part(F, diagonal(F, inner)))
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


# -- singular values ---------------------------------------------------------------------------------


def _svd_rule(F: Any, g: Any, out: Any, S: Any, Vh: Any) -> Any:
    grad_u, grad_s, grad_vh = g
    grad_v = None
    k = S.shape[-1]
    U = F.narrow(out, len(out.shape) - 1, 0, k)
    Vh = F.narrow(Vh, len(Vh.shape) - 2, 0, k)
    if grad_u is None and grad_vh is None:
        return F.matmul(U * F.unsqueeze(F.cast(grad_s, U.dtype), -2), Vh)
    m, n = out.shape[-2], Vh.shape[-1]
    complex_gauge = None
    # The squares' differences as a product, which keeps digits where singular values are close.
    apart = _differences(F, S) * _with_diagonal(F, F.unsqueeze(S, -2) + F.unsqueeze(S, -1), F.full_like(S, 1))
    across, down = F.unsqueeze(S, -2), F.unsqueeze(S, -1)
    inner = None
    if grad_u is not None:
        grad_u = F.narrow(grad_u, len(out.shape) - 1, 0, k)
        product = F.matmul(adjoint(F, U), grad_u)
        skew = product - adjoint(F, product)
        inner = skew / apart * across
        complex_gauge = diagonal(F, skew) / (2 * S)
    if grad_vh is not None:
        grad_v = adjoint(F, F.narrow(grad_vh, len(Vh.shape) - 2, 0, k))
        product = F.matmul(Vh, grad_v)
        skew = product - adjoint(F, product)
        term = skew / apart * down
        inner = term if inner is None else inner + term
        if complex_gauge is None:
            complex_gauge = -diagonal(F, skew) / (2 * S)
    on_diagonal = F.full_like(S, 0) if grad_s is None else grad_s
    if is_complex(U):
        on_diagonal = F.cast(on_diagonal, U.dtype) + complex_gauge
    inner = _with_diagonal(F, inner, on_diagonal)
    left = F.matmul(U, inner)
    if grad_u is not None and m > k:  # what gU has outside the span of U
        scaled = grad_u / across
        left = left + scaled - F.matmul(U, F.matmul(adjoint(F, U), scaled))
    total = F.matmul(left, Vh)
    if grad_v is not None and n > k:
        scaled = adjoint(F, grad_v / across)
        outside = scaled - F.matmul(F.matmul(scaled, adjoint(F, Vh)), Vh)
        total = total + F.matmul(U, outside)
    return total


@primitive(
    grads={"A": _svd_rule},
    holomorphic=False,
    outputs=3,
    extras=("S", "Vh"),
    differentiable=3,
    samples=lambda rng: [
        ((rng.standard_normal((3, 3)), False), {}),
        ((rng.standard_normal((2, 4, 2)), False), {}),
        ((rng.standard_normal((2, 4)), False), {}),
    ],
    reference=lambda A, full: np.linalg.svd(A, full_matrices=full),
    method=False,
    grad_name="LinalgSvdBackward0",
)
def svd_factor(F: Any, A: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, Vh with A = U diag(S) Vh; S descends. The gradient takes the loss to depend on the first k of U and Vh."""
    ...


@primitive(
    samples=lambda rng: [((rng.standard_normal((2, 4, 2)),), {})],
    reference=lambda A: np.linalg.svd(A, compute_uv=False),
    method=False,
)
def svdvals(F: Any, A: Tensor) -> Tensor:
    """The singular values (..., k), descending, where no gradient is needed."""
    ...


# -- eigenvalues ---------------------------------------------------------------------------------------


def _eigh_rule(F: Any, g: Any, out: Any, eigenvectors: Any) -> Any:
    grad_values, grad_vectors = g
    V = eigenvectors
    if grad_vectors is None:
        return F.matmul(V * F.unsqueeze(F.cast(grad_values, V.dtype), -2), adjoint(F, V))
    # Only the part of V^H gV that keeps V unitary counts.
    inner = F.matmul(adjoint(F, V), grad_vectors)
    inner = (inner - adjoint(F, inner)) * 0.5 / _differences(F, out)
    inner = _with_diagonal(F, inner, F.full_like(out, 0) if grad_values is None else grad_values)
    return F.matmul(F.matmul(V, inner), adjoint(F, V))


@primitive(
    grads={"A": _eigh_rule},
    holomorphic=False,
    outputs=2,
    extras=("eigenvectors",),
    differentiable=2,
    method=False,
    grad_name="LinalgEighBackward0",
)
def eigh_factor(F: Any, A: Tensor, UPLO: str) -> tuple[Tensor, Tensor]:
    """Eigenvalues (..., n), ascending, and eigenvectors (..., n, n) of symmetric or Hermitian matrices."""
    ...


@primitive(
    samples=lambda rng: [((rng.standard_normal((2, 3, 3)), "U"), {})],
    reference=np.linalg.eigvalsh,
    method=False,
)
def eigvalsh(F: Any, A: Tensor, UPLO: str) -> Tensor:
    """The eigenvalues of symmetric or Hermitian matrices, where no gradient is needed."""
    ...


def _eig_rule(F: Any, g: Any, A: Any, out: Any, eigenvectors: Any) -> Any:
    grad_values, grad_vectors = g
    V = eigenvectors
    if grad_vectors is None:
        inner = _spread_diagonal(F, grad_values)
    else:
        product = F.matmul(adjoint(F, V), grad_vectors)
        # The norm of an eigenvector does not change.
        fixed = F.matmul(adjoint(F, V), V) * F.unsqueeze(F.cast(F.real(diagonal(F, product)), V.dtype), -2)
        inner = (product - fixed) / F.conj(_differences(F, out))
        inner = _with_diagonal(F, inner, F.full_like(out, 0) if grad_values is None else grad_values)
    grad = F.solve(adjoint(F, V), F.matmul(inner, adjoint(F, V)))
    return grad if is_complex(A) else F.real(grad)


@primitive(
    grads={"A": _eig_rule},
    holomorphic=False,
    outputs=2,
    extras=("eigenvectors",),
    differentiable=2,
    method=False,
    grad_name="LinalgEigBackward0",
)
def eig_factor(F: Any, A: Tensor) -> tuple[Tensor, Tensor]:
    """Complex eigenvalues (..., n) and eigenvectors (..., n, n) of norm 1 of any square matrices."""
    ...


@primitive(method=False)
def eigvals(F: Any, A: Tensor) -> Tensor:
    """Complex eigenvalues of any square matrices, where no gradient is needed."""
    ...


# -- exponential -----------------------------------------------------------------------------------


def _matrix_exp_rule(F: Any, g: Any, input: Any) -> Any:
    """The derivative in the direction g, as a block of the exponential of a block matrix (Higham 2008, theorem 3.6)."""
    n, last = input.shape[-1], len(input.shape) - 1
    x = transposed(F, input)
    upper = F.cat([x, g], last)
    lower = F.cat([F.full_like(x, 0), x], last)
    whole = F.matrix_exp(F.cat([upper, lower], last - 1))
    return F.narrow(F.narrow(whole, last - 1, 0, n), last, n, n)


def _np_exp(A: Any) -> Any:
    values, vectors = np.linalg.eig(A)
    return ((vectors * np.exp(values)[..., None, :]) @ np.linalg.inv(vectors)).real


def _adapt_matrix_exp(input: Tensor) -> tuple[Tensor]:
    if input.dtype.category < 2:
        raise RuntimeError(
            f"linalg.matrix_exp: Expected a floating point or complex tensor as input. Got {input.dtype.name}"
        )
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_exp: A must be batches of square matrices, got {list(input.shape)}"
        )
    return (input,)


@primitive(
    grads={"input": _matrix_exp_rule},
    adapt=_adapt_matrix_exp,
    samples=lambda rng: [((rng.standard_normal((3, 3)),), {}), ((3 * rng.standard_normal((2, 2, 2)),), {})],
    reference=_np_exp,
    grad_name="LinalgMatrixExpBackward0",
)
def matrix_exp(F: Any, input: Tensor) -> Tensor:
    """The exponential of square matrices (..., n, n), by scaling and squaring (Higham 2005)."""
    ...
