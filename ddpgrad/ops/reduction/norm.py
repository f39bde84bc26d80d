"""Norms as functions: `norm`, `dist` and `renorm`."""

from __future__ import annotations

from typing import Any

from ...core.errors import must_be_tensor
from ...core.tensor import Tensor
from ..creation.factories import ones_like
from ..dispatch.tensor_function import tensor_function
from ..elementwise import binary
from ..linalg.norms import linalg_matrix_norm, linalg_vector_norm
from .reduce import wrap_dim


@tensor_function(out=True)
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The p-norm of the elements over `dim` (all by default), in `dtype` if given.

    p: a number or infinity; "fro" is 2; "nuc" is the sum of the singular values of matrices.
    """
    if input.dtype.category < 2:
        raise RuntimeError(
            f"norm(): expected a floating point or complex tensor as input, got {input.dtype.name}. Use x.float()."
        )
    if isinstance(p, str):
        if p not in ("fro", "nuc"):
            raise RuntimeError(f"norm(): order {p!r} is not supported; give 'fro', 'nuc' or a number")
        if dim is not None and not isinstance(dim, int) and len(dim) > 2:
            raise RuntimeError(f"norm(): dim must be a 2-tuple for p={p!r}, got {tuple(dim)}")
        if p == "nuc":
            return linalg_matrix_norm(input, "nuc", (0, 1) if dim is None else dim, keepdim, dtype=dtype)
    order = 2.0 if p is None or p == "fro" else p
    return linalg_vector_norm(input, order, dim, keepdim, dtype=dtype)


@tensor_function(inplace=True, out=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """`input` with each slice along `dim` scaled down to a p-norm of at most `maxnorm`."""
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    if p <= 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported, got p={p}")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    dim = wrap_dim("renorm", dim, input.ndim)
    lengths = linalg_vector_norm(input, p, tuple(d for d in range(input.ndim) if d != dim), True)
    # 1e-7 as in PyTorch, for the same results.
    return input * binary.where(lengths > maxnorm, maxnorm / (lengths + 1e-7), ones_like(lengths))


@tensor_function()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of `input` - `other`."""
    for place, value in enumerate((input, other)):
        if not isinstance(value, Tensor):
            raise must_be_tensor("dist", ("input", "other")[place], place, value)
    return linalg_vector_norm(input - other, p)
