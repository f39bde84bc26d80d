"""Triangles and diagonals of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.overrides import asking_modes
from ...core.size import as_ints
from ...core.tensor import Tensor
from ..creation.factories import finish
from ..dispatch.declare import op, primitive
from ..dispatch.samples import calls
from ..dispatch.tensor_function import tensor_function
from ..elementwise import unary
from ..indexing.setitem import copy_, fill_
from ..reduction import reduce
from ..reduction.reduce import wrap_dim


def _adapt_triangle(name: str) -> Any:
    def adapt(input: Tensor, diagonal: int = 0) -> tuple[Any, ...]:
        if input.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return input, as_ints(name, (diagonal,))[0]

    return adapt


@primitive(
    grads={"input": lambda F, g, diagonal: F.tril(g, diagonal)},
    adapt=_adapt_triangle("tril"),
    samples=calls((), (1,), (-1,)),
    reference=np.tril,
    inplace=True,
)
def tril(F: Any, input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of the last two dimensions; elsewhere 0."""
    ...


@primitive(
    grads={"input": lambda F, g, diagonal: F.triu(g, diagonal)},
    adapt=_adapt_triangle("triu"),
    samples=calls((), (1,), (-1,)),
    reference=np.triu,
    inplace=True,
)
def triu(F: Any, input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of the last two dimensions; elsewhere 0."""
    ...


def _lower(row: int, col: int, offset: int) -> tuple[Any, Any]:
    """The first column, and the one after the last, of each row on the diagonal or below it."""
    end = np.clip(np.arange(row) + (offset + 1), 0, col)
    return np.zeros_like(end), end


def _upper(row: int, col: int, offset: int) -> tuple[Any, Any]:
    first = np.clip(np.arange(row) + offset, 0, col)
    return first, np.full_like(first, col)


def _places(first: Any, end: Any, dtype: Any) -> Any:
    """Rows and columns, (2, count), of what lies in each row from `first` to before `end`."""
    counts = end - first
    found = np.empty((2, counts.sum()), dtype)
    found[0] = np.repeat(np.arange(counts.size), counts)
    # The columns of a row count on from where the row begins in the result.
    found[1] = np.arange(found.shape[1]) - np.repeat(counts.cumsum() - counts - first, counts)
    return found


def _indices(name: str, find: Any) -> Any:
    def indices(
        row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None
    ) -> Tensor:
        if row < 0 or col < 0:
            raise RuntimeError(f"{name}(): row and col must be non-negative, got row={row}, col={col}")
        kind = dtypes.of(dtype or dtypes.int64)
        if kind.name not in ("int32", "int64"):
            raise RuntimeError(f"\"{name}\" not implemented for '{kind.scalar_type}'; use int32 or int64")
        first, end = find(row, col, offset)
        return finish(_places(first, end, kind.numpy), device)

    indices.__name__ = name
    indices.__doc__ = f"Rows and columns, (2, count), of the {name[:4]} part of a row x col matrix."
    return asking_modes(indices)


tril_indices, triu_indices = (_indices("tril_indices", _lower), _indices("triu_indices", _upper))


def _two_dims(name: str, dim1: int, dim2: int, ndim: int) -> tuple[int, int]:
    first, second = wrap_dim(name, dim1, ndim), wrap_dim(name, dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return first, second


@primitive(
    grads={
        "input": lambda F, g, input_shape, offset, dim1, dim2: F.place_diagonal(
            g, input_shape, offset, dim1, dim2
        )
    },
    adapt=lambda input, offset=0, dim1=0, dim2=1: (
        input,
        int(offset),
        *_two_dims("diagonal", dim1, dim2, input.ndim),
    ),
    view=True,
    samples=calls((), (1, 0, 2), (-1, 2, 1), (5,)),
    reference=np.diagonal,
)
def diagonal(F: Any, input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Elements (i, i + offset) of dimensions dim1 and dim2, as the last dimension; a view."""
    ...


@op(
    grads={"g": lambda F, g, offset, dim1, dim2: F.diagonal(g, offset, dim1, dim2)},
    samples=lambda rng: [((rng.standard_normal((4, 2)), (2, 3, 4), 1, 0, 1), {})],
    reference=lambda g, shape, offset, d1, d2: _np_place(g, shape, offset, d1, d2),
    method=False,
)
def place_diagonal(F: Any, g: Tensor, shape: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    """Zeros of `shape` with `g` on the diagonal: the gradient of `diagonal`."""
    out = F.new_zeros(g, tuple(shape))
    F.diagonal(out, offset, dim1, dim2)[...] = g
    return out


def _np_place(g: Any, shape: Any, offset: int, dim1: int, dim2: int) -> Any:
    out = np.zeros(shape)
    part = np.diagonal(out, offset, dim1, dim2)
    part.flags.writeable = True
    part[...] = g
    return out


@tensor_function()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices in dimensions dim1 and dim2 with the last dimension of `input` on their diagonal."""
    first, second = _two_dims("diag_embed", dim1, dim2, input.ndim + 1)
    if not input.ndim:
        raise IndexError(
            "diag_embed(): Dimension out of range: the input has no dimension to lay on a diagonal"
        )
    side = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, side)
    return place_diagonal(input, tuple(shape), offset, first, second)


@tensor_function(out=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as a diagonal matrix, or the diagonal of a matrix as a vector, in new memory."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim == 2:
        return unary.clone(_diagonal(input, diagonal))
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


_diagonal = diagonal  # `diag` has an argument of that name


@tensor_function()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """All elements, in order, on the diagonal of a matrix."""
    return diag_embed(input.reshape(-1), offset)


@tensor_function()
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return reduce.sum(diagonal(input))


@tensor_function()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of `input` with `src` on the diagonal."""
    out = unary.clone(input)
    region = diagonal(out, offset, dim1, dim2)
    require_shape("diagonal_scatter", region, src)
    copy_(region, src)
    return out


def require_shape(name: str, region: Tensor, src: Tensor) -> None:
    """`RuntimeError` unless `src` has the shape of the region that it goes to."""
    if region.shape != src.shape:
        raise RuntimeError(
            f"{name}: expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
            f"{list(region.shape)}"
        )


def fill_diagonal_(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write one value on the main diagonal; with `wrap`, on it again below the square part of a tall matrix."""
    if input.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if input.ndim > 2 and len(set(input.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    step = sum(input.stride())
    height, width = input.shape[0], min(input.shape)
    sizes = [(0, width)]
    if wrap and input.ndim == 2 and height > width + 1:
        sizes += [(start, min(width, height - start)) for start in range(width + 1, height, width + 1)]
    from .strided import strided

    for start, length in sizes:
        fill_(strided(input, (length,), (step,), start * input.stride(0), input.stride()), fill_value)
    return input
