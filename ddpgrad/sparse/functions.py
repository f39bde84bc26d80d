"""`torch.sparse`'s products, sums and softmax. Gradients of sparse operands are sparse, at the same places."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.function import Function
from ..core.overrides import overridable
from ..core.tensor import Tensor, wrap
from ..ops.indexing.index import subscript
from ..ops.layers.embedding import embedding_backward, embedding_rows
from ..ops.linalg import matrix
from ..ops.reduction import reduce
from .autograd import build, coalesced, is_coo, shown_as, values_of
from .methods import wrapped


@shown_as("SparseAddmmBackward0")
class _Product(Function):
    """A sparse matrix times a dense one."""

    @staticmethod
    def forward(ctx: Any, mat1: Tensor, mat2: Tensor) -> Tensor:
        ctx.save_for_backward(mat1, mat2)
        return matrix.matmul(mat1, mat2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        mat1, mat2 = ctx.saved_tensors
        first = second = None
        if ctx.needs_input_grad[0]:
            pattern = mat1._array.coalesce()
            rows, columns = (wrap(places) for places in pattern.indices)
            first = build(reduce.sum(subscript(g, rows) * subscript(mat2, columns), -1), pattern)
        if ctx.needs_input_grad[1]:
            second = matrix.matmul(mat1.t(), g)
        return first, second


@overridable
def mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of a sparse matrix (n, k) and a dense one (k, m), or of two matrices of one layout.

    The gradient of a sparse `mat1` is sparse, at its places. reduce: only sums are taken. Source: torch.sparse.mm.
    """
    if reduce not in (None, "sum"):
        raise NotImplementedError(f"torch.sparse.mm: reduce={reduce!r} is not supported; sums are")
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(
            f"torch.sparse.mm: expected two matrices, got shapes {list(mat1.shape)} and {list(mat2.shape)}"
        )
    if is_coo(mat1) and not is_coo(mat2):
        return _Product.apply(mat1, mat2)
    return matrix.matmul(mat1, mat2)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """beta * mat + alpha * mat1 @ mat2, where `mat1` is sparse and the others are dense."""
    product = mm(mat1, mat2)
    return beta * mat + (product if alpha == 1 else alpha * product)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of a sparse tensor over dimensions (all by default): dense if no sparse dimension is left, else sparse.

    Its gradient is sparse, at the places of `input`.
    """
    if not is_coo(input):
        raise RuntimeError("torch.sparse.sum: expected a sparse tensor, got layout torch.strided")
    whole = coalesced(input)
    array, values = whole._array, values_of(whole)
    given = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = {wrapped("sum", input, d) for d in given}
    kept = [d for d in range(array.sparse_dim) if d not in dims]
    dense = [d - array.sparse_dim + 1 for d in sorted(dims) if d >= array.sparse_dim]
    over = ([] if kept else [0]) + dense
    if over or dtype is not None:
        values = reduce.sum(values, over, dtype=dtype) if over else values.to(dtype)
    if not kept:
        return values
    shape = [n for d, n in enumerate(input.shape) if d not in dims]
    return coalesced(build(values, array.like(array.indices[kept], values._array, shape)))


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along `dim`, taken over the stored elements: those that are not stored count as -inf."""
    return _softmax("softmax", input, dim, dtype, logarithm=False)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    return _softmax("log_softmax", input, dim, dtype, logarithm=True)


def _softmax(name: str, input: Tensor, dim: int, dtype: Any, logarithm: bool) -> Tensor:
    if not is_coo(input):
        raise RuntimeError(f"torch.sparse.{name}: expected a sparse tensor, got layout torch.strided")
    dim = wrapped(name, input, dim)
    whole = coalesced(input if dtype is None else input.to(dtype))
    array, values = whole._array, values_of(whole)
    if dim >= array.sparse_dim:
        along = dim - array.sparse_dim + 1
        return build(values.log_softmax(along) if logarithm else values.softmax(along), array)
    others = [d for d in range(array.sparse_dim) if d != dim]
    lines = array.like(array.indices[others], array.values, [array.shape[d] for d in others])
    keys, owner = np.unique(lines.keys(), return_inverse=True)
    flat = values.reshape(array.nnz, -1)
    line, count = wrap(owner.reshape(-1)), len(keys)
    most = np.full_like(flat._array, -np.inf, shape=(count, flat.shape[1]))
    np.maximum.at(most, line._array, flat._array)
    shifted = flat - embedding_rows(wrap(most), line)
    total = embedding_rows(embedding_backward(shifted.exp(), line, count), line)
    out = shifted - total.log() if logarithm else shifted.exp() / total
    return build(out.reshape(values.shape), array)
