"""`torch.sparse`'s products, sums and softmax. Gradients of sparse operands are sparse, at the same places."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.function import Function
from ..backend import dtype as dtypes
from ..backend.registry import backend_for
from ..core.overrides import overridable
from ..core.size import sparse_csc, sparse_csr
from ..core.tensor import Tensor, wrap
from ..ops.indexing.index import subscript
from ..ops.layers.embedding import embedding_backward, embedding_rows
from ..ops.linalg import matrix
from ..ops.reduction import reduce
from .autograd import build, coalesced, is_coo, is_sparse, shown_as, values_of
from .methods import sparse_mask, wrapped


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
            first = build(reduce.sum(subscript(g, rows) * subscript(mat2, columns).conj(), -1), pattern)
        if ctx.needs_input_grad[1]:
            second = matrix.matmul(mat1.t().conj(), g)
        return first, second


@overridable
def mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of a sparse matrix (n, k) and a dense one (k, m), or of two matrices of one layout.

    The gradient of a sparse `mat1` is sparse, at its places. reduce: "sum", "mean", "amax" or "amin" of the products that
    a row's stored elements give, 0 where it has none; `mat1` is then of layout `torch.sparse_csr`. Source: torch.sparse.mm.
    """
    if reduce is not None:
        return _reduced(mat1, mat2, reduce)
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(
            f"torch.sparse.mm: expected two matrices, got shapes {list(mat1.shape)} and {list(mat2.shape)}"
        )
    if is_sparse(mat1) and not is_sparse(mat2):
        return _Product.apply(mat1, mat2)
    return matrix.matmul(mat1, mat2)


def _reduced(mat1: Tensor, mat2: Tensor, how: str) -> Tensor:
    if mat1.layout is not sparse_csr or is_sparse(mat2) or mat1.ndim != 2:
        raise RuntimeError(
            f"torch.sparse.mm: reduce={how!r} expects a CSR matrix and a dense one, got layouts {mat1.layout} and "
            f"{mat2.layout}, shapes {list(mat1.shape)} and {list(mat2.shape)}"
        )
    if not mat1.is_floating_point():
        raise NotImplementedError(f"torch.sparse.mm: reduce={how!r} is not implemented for {mat1.dtype}")
    if how in ("sum", "mean"):
        total = _Product.apply(mat1, mat2)
        starts = mat1._array.starts
        counts = wrap((starts[1:] - starts[:-1]).astype(mat2._array.dtype))
        return total if how == "sum" else total / counts.clamp(min=1).unsqueeze(-1)
    if how not in ("amax", "amin"):
        raise ValueError(f"torch.sparse.mm: reduce must be 'sum', 'mean', 'amax' or 'amin', got {how!r}")
    if not mat1.is_cpu or mat1.dtype not in (dtypes.float32, dtypes.float64) or mat1.dtype is not mat2.dtype:
        raise NotImplementedError(
            f"torch.sparse.mm: reduce={how!r} is for two float32 or float64 matrices on the CPU, got {mat1.dtype} and "
            f"{mat2.dtype} on {mat1.device}"
        )
    return _Largest.apply(mat1, mat2, 1 if how == "amax" else -1)


class _Largest(Function):
    """The largest, or smallest, product of each row's stored elements: its gradient goes to the one element that gave it."""

    @staticmethod
    def forward(ctx: Any, mat1: Tensor, mat2: Tensor, sign: int) -> Tensor:
        array = mat1._array
        starts, places = (part.astype(np.int64, copy=False) for part in (array.starts, array.places))
        F = backend_for(array.values)
        out, chosen = F.largest_product(starts, places, array.values, mat2._array, sign)
        ctx.save_for_backward(mat1, mat2)
        ctx.chosen = chosen
        return wrap(out)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # type: ignore[override]
        mat1, mat2 = ctx.saved_tensors
        rows, column = (wrap(places) for places in (ctx.chosen >= 0).nonzero())
        element = wrap(ctx.chosen[ctx.chosen >= 0])
        line, values = wrap(mat1._array.indices[1])[element], values_of(mat1)
        part = g[rows, column]
        first = second = None
        if ctx.needs_input_grad[0]:
            first = build(
                values.new_zeros(len(values)).index_add(0, element, part * mat2[line, column]), mat1._array
            )
        if ctx.needs_input_grad[1]:
            second = mat2.new_zeros(mat2.shape).index_put(
                (line, column), part * values[element], accumulate=True
            )
        return first, second, None


@overridable
def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Tensor | None = None
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) at the places that `input` (n, m), compressed, has stored; nothing else is computed.

    Source: torch.sparse.sampled_addmm.
    """
    if input.layout not in (sparse_csr, sparse_csc) or is_sparse(mat1) or is_sparse(mat2):
        raise RuntimeError(
            "sampled_addmm: Expected self to have layout SparseCsr and mat1, mat2 to be dense, got "
            f"{input.layout}, {mat1.layout} and {mat2.layout}"
        )
    if input.dtype.category < 2:
        raise NotImplementedError(f"sampled_addmm is not implemented for {input.dtype}")
    inner, outer = mat1.shape[-1:], (*mat1.shape[:-1], *mat2.shape[1:])
    if input.ndim != 2 or (inner, outer) != (mat2.shape[:1], tuple(input.shape)):
        raise RuntimeError(
            f"sampled_addmm: mat1 {list(mat1.shape)} @ mat2 {list(mat2.shape)} does not have the shape of input, "
            f"{list(input.shape)}"
        )
    made = _Sampled.apply(input, mat1, mat2, beta, alpha)
    return made if out is None else out.copy_(made)


@shown_as("SparseSampledAddmmBackward0")
class _Sampled(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
        ctx.save_for_backward(input, mat1, mat2)
        ctx.factors = beta, alpha
        rows, columns = (wrap(places) for places in input._array.indices)
        products = reduce.sum(subscript(mat1, rows) * subscript(mat2.t(), columns), -1)
        values = wrap(input._array.values)
        return wrap(input._array.with_values((beta * values + alpha * products)._array))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (input, mat1, mat2), (beta, alpha) = ctx.saved_tensors, ctx.factors
        held = alpha.conjugate() * sparse_mask(g, input)
        first = beta.conjugate() * g if ctx.needs_input_grad[0] else None
        second = matrix.matmul(held, mat2.mH) if ctx.needs_input_grad[1] else None
        third = matrix.matmul(mat1.mH, held) if ctx.needs_input_grad[2] else None
        return first, second, third, None, None


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """beta * mat + alpha * mat1 @ mat2, where `mat1` is sparse and the others are dense."""
    product = mm(mat1, mat2)
    return beta * mat + (product if alpha == 1 else alpha * product)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of a sparse tensor over dimensions (all by default): dense if no sparse dimension is left, else sparse.

    Its gradient is sparse, at the places of `input`.
    """
    if not is_coo(input):
        raise RuntimeError(f"torch.sparse.sum: expected layout torch.sparse_coo, got {input.layout}")
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
        raise RuntimeError(f"torch.sparse.{name}: expected layout torch.sparse_coo, got {input.layout}")
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
