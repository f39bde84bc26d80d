"""Singular values and eigenvalues: kernels with their gradient rules.

The public functions are in `decompositions.py`. Rules: Giles, "Collected matrix derivative results", 2008; Townsend,
"Differentiating the singular value decomposition", 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend.registry import backend_for
from ...core.tensor import Tensor
from ..dispatch.declare import primitive
from .adjoint import adjoint, diagonal, is_complex
from .decomposition_ops import with_diagonal


def _differences(F: Any, values: Any) -> Any:
    """values[j] - values[i] at (i, j), with 1 on the diagonal."""
    apart = F.unsqueeze(values, -2) - F.unsqueeze(values, -1)
    return with_diagonal(F, apart, F.full_like(values, 1))


def _spread_diagonal(F: Any, values: Any) -> Any:
    """Diagonal matrices (..., n, n) of `values` (..., n)."""
    n = values.shape[-1]
    return with_diagonal(F, F.expand(F.unsqueeze(F.full_like(values, 0), -1), (*values.shape, n)), values)


def _require_gauge_invariance(F: Any, name: str, *turned: Any) -> None:
    """`RuntimeError` if a loss changes as complex vectors are multiplied by exp(i phi), which no decomposition determines.

    turned: the vectors' adjoint times their gradient, in parts that count together.
    """
    if not is_complex(turned[0]):
        return
    total = sum((diagonal(F, product) for product in turned[1:]), diagonal(F, turned[0]))
    slope: Any = getattr(total, "_array", total).imag
    if backend_for(slope).kind != "meta" and bool((abs(slope) > 1e-2).any()):
        raise RuntimeError(
            f"{name}: The vectors in the complex case are specified up to multiplication by e^{{i phi}}. The specified "
            "loss function depends on this quantity, so it is ill-defined."
        )


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
    complex_gauge, turned = None, []
    # The squares' differences as a product, which keeps digits where singular values are close.
    apart = _differences(F, S) * with_diagonal(F, F.unsqueeze(S, -2) + F.unsqueeze(S, -1), F.full_like(S, 1))
    across, down = F.unsqueeze(S, -2), F.unsqueeze(S, -1)
    inner = None
    if grad_u is not None:
        grad_u = F.narrow(grad_u, len(out.shape) - 1, 0, k)
        product = F.matmul(adjoint(F, U), grad_u)
        turned.append(product)
        skew = product - adjoint(F, product)
        inner = skew / apart * across
        complex_gauge = diagonal(F, skew) / (2 * S)
    if grad_vh is not None:
        grad_v = adjoint(F, F.narrow(grad_vh, len(Vh.shape) - 2, 0, k))
        product = F.matmul(Vh, grad_v)
        turned.append(product)
        skew = product - adjoint(F, product)
        term = skew / apart * down
        inner = term if inner is None else inner + term
        if complex_gauge is None:
            complex_gauge = -diagonal(F, skew) / (2 * S)
    _require_gauge_invariance(F, "svd_backward", *turned)
    on_diagonal = F.full_like(S, 0) if grad_s is None else grad_s
    if is_complex(U):
        on_diagonal = F.cast(on_diagonal, U.dtype) + complex_gauge
    inner = with_diagonal(F, inner, on_diagonal)
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
    _require_gauge_invariance(F, "linalg_eigh_backward", inner)
    inner = (inner - adjoint(F, inner)) * 0.5 / _differences(F, out)
    inner = with_diagonal(F, inner, F.full_like(out, 0) if grad_values is None else grad_values)
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
        _require_gauge_invariance(F, "linalg_eig_backward", product)
        # The norm of an eigenvector does not change.
        fixed = F.matmul(adjoint(F, V), V) * F.unsqueeze(F.cast(F.real(diagonal(F, product)), V.dtype), -2)
        inner = (product - fixed) / F.conj(_differences(F, out))
        inner = with_diagonal(F, inner, F.full_like(out, 0) if grad_values is None else grad_values)
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
