"""Low-rank decompositions of large matrices: by random projections, and `lobpcg`.

Halko, Martinsson and Tropp, "Finding structure with randomness", 2011, algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ..creation.draws import randn
from ..dispatch.tensor_function import tensor_function
from ..reduction import reduce
from ..shape import shape
from . import matrix
from .decompositions import linalg_cholesky, linalg_eigh, linalg_qr, linalg_svd
from .systems import linalg_solve_triangular, require_matrix, require_square


def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """An orthonormal basis (..., m, q) of most of A's range."""
    sketch = matrix.matmul(A, randn(A.shape[-1], q, dtype=A.dtype, device=A.device))
    Q = linalg_qr(sketch).Q
    for _ in range(niter):
        Q = linalg_qr(matrix.matmul(A.mH, Q)).Q
        Q = linalg_qr(matrix.matmul(A, Q)).Q
    return Q


@tensor_function(method=False)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of about the `q` largest singular values of A - M; more iterations `niter` are more exact."""
    require_matrix("svd_lowrank", A)
    rank = 6 if q is None else q
    difference = A if M is None else A - M
    flipped = difference.shape[-2] < difference.shape[-1]
    difference = difference.mH if flipped else difference
    Q = _basis(difference, rank, 2 if niter is None else niter)
    U, S, Vh = linalg_svd(matrix.matmul(Q.mH, difference), False)
    left, right = matrix.matmul(Q, U), Vh.mH
    return (right, S, left) if flipped else (left, S, right)


@tensor_function(method=False)
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V): the columns of V are about the `q` first principal directions of the rows of A."""
    require_matrix("pca_lowrank", A)
    m, n = A.shape[-2:]
    rank = min(6, m, n) if q is None else q
    if not 0 <= rank <= min(m, n):
        raise ValueError(
            f"q(={rank}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - reduce.mean(A, -2, True) if center else A, rank, niter)


@tensor_function(method=False)
def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None,
    iK: Tensor | None = None, niter: int | None = None, tol: float | None = None, largest: bool | None = None,
    method: str | None = None, tracker: Any = None, ortho_iparams: Any = None, ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(E, V): the `k` largest (or smallest) eigenvalues of A v = e B v, A symmetric and B positive, and their vectors.

    PyTorch finds them by iteration from a guess `X`; here they are taken from all of them, exactly. Of `X`
    only the number of columns counts, and what steers the iteration changes nothing.
    """
    require_square("lobpcg", A)
    size = A.shape[-1]
    count = k if k is not None else 1 if X is None else X.shape[-1]
    if size < 3 * count:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={size}) is smaller than 3 x the number of "
            f"requested eigenpairs (={count})"
        )
    A = (A + A.mH) / 2  # both triangles count, and both get a gradient
    if B is None:
        values, vectors = linalg_eigh(A)
    else:
        L = linalg_cholesky((B + B.mH) / 2)
        half = linalg_solve_triangular(L, A, upper=False)
        values, vectors = linalg_eigh(linalg_solve_triangular(L, half.mH, upper=False).mH)
        vectors = linalg_solve_triangular(L.mH, vectors, upper=True)
    if largest is None or largest:
        values, vectors = shape.flip(values, -1), shape.flip(vectors, -1)
    return shape.narrow(values, -1, 0, count), shape.narrow(vectors, -1, 0, count)
