"""The exponential of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import primitive
from .adjoint import transposed


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
