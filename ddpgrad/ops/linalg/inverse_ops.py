"""Inverses, solutions of linear systems and determinants: kernels with their gradient rules.

The public functions, which check shapes and say what is singular, are in `systems.py`. Rules:
Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation", 2008; Golub and Pereyra, "The differentiation of pseudo-inverses", 1973.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.autocast import in_float32
from ..dispatch.declare import TensorLike, composite, op, primitive
from .adjoint import adjoint, conjugate, is_complex, transposed


def well_conditioned(rng: Any, *shape: int) -> Any:
    """Square matrices whose condition number is small."""
    return rng.standard_normal(shape) + 2 * np.sqrt(shape[-1]) * np.eye(shape[-1])


@primitive(
    grads={"A": lambda F, g, out: -F.matmul(transposed(F, out), F.matmul(g, transposed(F, out)))},
    samples=lambda rng: [((well_conditioned(rng, 3, 3),), {}), ((well_conditioned(rng, 2, 4, 4),), {})],
    reference=np.linalg.inv,
    method=False,
    grad_name="LinalgInvExBackward0",
)
def inv(F: Any, A: Tensor) -> Tensor:
    """The inverses of square matrices (..., n, n); nan where there is none."""
    ...


def _solve_rule(F: Any, g: Any, needs: Sequence[bool], A: Any, out: Any) -> tuple[Any, Any]:
    grad_b = F.solve(transposed(F, A), g)
    return -F.matmul(grad_b, transposed(F, out)) if needs[0] else None, grad_b


@primitive(
    joint=_solve_rule,
    samples=lambda rng: [
        ((well_conditioned(rng, 3, 3), rng.standard_normal((3, 2))), {}),
        ((well_conditioned(rng, 2, 3, 3), rng.standard_normal((3, 1))), {}),
        ((well_conditioned(rng, 3, 3), rng.standard_normal((2, 3, 1))), {}),
    ],
    reference=np.linalg.solve,
    method=False,
    grad_name="LinalgSolveExBackward0",
)
def solve(F: Any, A: Tensor, B: Tensor) -> Tensor:
    """X (..., n, k) with A @ X = B; nan where A (..., n, n) is singular."""
    ...


def _triangle(F: Any, x: Any, upper: bool, unitriangular: bool) -> Any:
    """What a triangular solve reads of x."""
    return F.triu(x, int(unitriangular)) if upper else F.tril(x, -int(unitriangular))


def _solve_triangular_rule(
    F: Any, g: Any, needs: Sequence[bool], A: Any, out: Any, upper: bool, unitriangular: bool
) -> tuple[Any, Any]:
    grad_b = F.solve_triangular(transposed(F, A), g, not upper, unitriangular)
    if not needs[0]:
        return None, grad_b
    return -_triangle(F, F.matmul(grad_b, transposed(F, out)), upper, unitriangular), grad_b


def _np_solve_triangular(A: Any, B: Any, upper: bool, unitriangular: bool = False) -> Any:
    A = np.triu(A) if upper else np.tril(A)
    if unitriangular:
        A = A - A * np.eye(A.shape[-1]) + np.eye(A.shape[-1])
    return np.linalg.solve(A, B)


@primitive(
    joint=_solve_triangular_rule,
    samples=lambda rng: [
        ((well_conditioned(rng, 3, 3), rng.standard_normal((3, 2)), True), {}),
        ((well_conditioned(rng, 2, 3, 3), rng.standard_normal((3, 2)), False), {}),
        ((rng.standard_normal((3, 3)), rng.standard_normal((2, 3, 1)), False, True), {}),
    ],
    reference=_np_solve_triangular,
    method=False,
    grad_name="LinalgSolveTriangularBackward0",
)
def solve_triangular(F: Any, A: Tensor, B: Tensor, upper: bool, unitriangular: bool = False) -> Tensor:
    """X (..., n, k) with A @ X = B, where one triangle of A (..., n, n) is read; unitriangular: with ones on the diagonal."""
    ...


# -- determinants --------------------------------------------------------------------------------


@composite
def cofactors(F: Any, A: Any) -> Any:
    """The matrix of cofactors, which is det(A) times the transposed inverse where there is one."""
    raw = getattr(A, "_array", A)
    n = raw.shape[-1]
    with_inverse = F.inv(A)
    inverse = getattr(with_inverse, "_array", with_inverse)
    condition = abs(raw).sum(-2).max(-1) * abs(inverse).sum(-2).max(-1) if raw.size else np.zeros(0)
    # nan compares as singular.
    if bool((condition * n * np.finfo(raw.dtype).eps < 1e-3).all()):
        return F.unsqueeze(F.unsqueeze(F.det(A), -1), -1) * transposed(F, with_inverse)
    U, S, Vh = F.svd_factor(A, True)
    signs = F.det(U) * F.det(Vh)
    others = products_of_others(F, S)
    scaled = F.unsqueeze(F.cast(others, raw.dtype) * F.unsqueeze(signs, -1), -2)
    # cof(U S Vh) = cof(U) cof(S) cof(Vh), and the cofactors of a unitary matrix are det times its conjugate.
    return F.matmul(conjugate(F, U) * scaled, conjugate(F, Vh))


def products_of_others(F: Any, x: Any) -> Any:
    """For each element of the last dimension, the product of the others; zeros are no special case."""
    last, n = len(x.shape) - 1, x.shape[-1]
    parts = [F.narrow(x, last, i, 1) for i in range(n)]
    before, after = [F.full_like(parts[0], 1)], [F.full_like(parts[0], 1)]
    for i in range(n - 1):
        before.append(before[-1] * parts[i])
        after.append(after[-1] * parts[n - 1 - i])
    return F.cat([b * a for b, a in zip(before, reversed(after), strict=True)], last)


def _adapt_det(A: Tensor) -> tuple[Tensor]:
    if A.dtype.category < 2:
        raise RuntimeError(
            f"linalg.det: Expected a floating point or complex tensor as input. Got {A.dtype.name}"
        )
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"linalg.det: A must be batches of square matrices, but they are {' by '.join(map(str, A.shape[-2:]))} "
            "matrices"
        )
    if A.dtype.itemsize < 4 and not in_float32(A):
        raise NotImplementedError(
            f"linalg.det: not implemented for '{A.dtype.scalar_type}'; convert it, as by A.float()"
        )
    return (A,)


@primitive(
    grads={"A": lambda F, g, A: F.unsqueeze(F.unsqueeze(g, -1), -1) * F.cofactors(A) if A.shape[-1] else A},
    adapt=_adapt_det,
    samples=lambda rng: [((rng.standard_normal((3, 3)),), {}), ((rng.standard_normal((2, 2, 2)),), {})],
    reference=np.linalg.det,
    grad_name="LinalgDetBackward0",
)
def det(F: Any, A: Tensor) -> Tensor:
    """The determinants of square matrices (..., n, n)."""
    ...


def _slogdet_rule(F: Any, g: Any, A: Any, out: Any) -> Any:
    grad_sign, grad_log = g
    weight = grad_log
    if is_complex(A) and grad_sign is not None:
        turn = F.imag(F.conj(grad_sign) * out) * -1j
        weight = turn if grad_log is None else F.cast(grad_log, turn.dtype) + turn
    if weight is None:  # the sign of a real determinant does not change
        return F.full_like(A, 0)
    return F.unsqueeze(F.unsqueeze(weight, -1), -1) * adjoint(F, F.inv(A))


@primitive(
    grads={"A": _slogdet_rule},
    holomorphic=False,
    samples=lambda rng: [((rng.standard_normal((3, 3)),), {}), ((rng.standard_normal((2, 2, 2)),), {})],
    reference=np.linalg.slogdet,
    outputs=2,
    extras=("logabsdet",),
    differentiable=2,
    method=False,
    grad_name="LinalgSlogdetBackward0",
)
def slogdet_pair(F: Any, A: Tensor) -> tuple[Tensor, Tensor]:
    """The determinants' sign (for complex matrices their angle as a number of modulus 1) and log modulus."""
    ...


# -- pseudo-inverses -----------------------------------------------------------------------------


def _pinv_rule(F: Any, g: Any, A: Any, out: Any) -> Any:
    gh, oh = adjoint(F, g), adjoint(F, out)
    if A.shape[-2] <= A.shape[-1]:
        K = F.matmul(gh, out)
        Koh = F.matmul(K, oh)
        return (
            Koh
            - adjoint(F, F.matmul(out, K))
            - F.matmul(F.matmul(A, out), Koh)
            + F.matmul(F.matmul(oh, out), gh - F.matmul(K, A))
        )
    K = F.matmul(out, gh)
    ohK = F.matmul(oh, K)
    return (
        ohK
        - adjoint(F, F.matmul(K, out))
        - F.matmul(F.matmul(ohK, out), A)
        + F.matmul(F.matmul(gh - F.matmul(A, K), out), oh)
    )


def cutoff(F: Any, values: Any, atol: Any, rtol: Any) -> Any:
    """max(atol, rtol * the largest of `values`), (..., 1): below it a singular value counts as zero."""
    limit = F.amax(values, -1, True) * rtol
    return F.where(limit > atol, limit, atol)


@op(
    grads={"A": _pinv_rule},
    holomorphic=False,
    samples=lambda rng: [
        ((rng.standard_normal((4, 3)), 0.0, 1e-10), {}),
        ((rng.standard_normal((2, 2, 3)), 0.0, 1e-10), {}),
    ],
    reference=lambda A, atol, rtol: np.linalg.pinv(A),
    method=False,
    grad_name="LinalgPinvBackward0",
)
def pseudo_inverse(F: Any, A: Tensor, atol: TensorLike, rtol: TensorLike, hermitian: bool = False) -> Tensor:
    """The Moore-Penrose inverses (..., n, m) of A (..., m, n)."""
    if hermitian:
        values, U = F.eigh_factor(A, "L")
        Vh, sizes = adjoint(F, U), F.abs(values)
    else:
        U, values, Vh = F.svd_factor(A, False)
        sizes = values
    keep = sizes > cutoff(F, sizes, atol, rtol)
    inverse = F.where(keep, 1 / F.where(keep, values, F.full_like(values, 1)), F.full_like(values, 0))
    return F.matmul(adjoint(F, Vh) * F.unsqueeze(F.cast(inverse, A.dtype), -2), adjoint(F, U))


def _lstsq_rule(F: Any, g: Any, needs: Sequence[bool], A: Any, B: Any, rcond: float) -> tuple[Any, Any]:
    inverse = F.pseudo_inverse(A, 0.0, rcond)
    grad_b = F.matmul(adjoint(F, inverse), g)
    grad_a = _pinv_rule(F, F.matmul(g, adjoint(F, B)), A, inverse) if needs[0] else None
    return grad_a, grad_b


@primitive(
    joint=_lstsq_rule,
    holomorphic=False,
    samples=lambda rng: [
        ((rng.standard_normal((4, 2)), rng.standard_normal((4, 3)), 1e-12), {}),
        ((rng.standard_normal((2, 2, 4)), rng.standard_normal((2, 2, 1)), 1e-12), {}),
    ],
    reference=lambda A, B, rcond: (
        np.linalg.pinv(A) @ B, np.full(A.shape[:-2], 2), np.linalg.svd(A, compute_uv=False),
    ),
    outputs=3,
    extras=("rank", "singular_values"),
    method=False,
    grad_name="LinalgLstsqBackward0",
)  # fmt: skip
def lstsq_solution(F: Any, A: Tensor, B: Tensor, rcond: float) -> tuple[Tensor, Tensor, Tensor]:
    """The X (..., n, k) of least norm that minimise |A @ X - B|; the ranks and singular values of A (..., m, n)."""
    ...
