"""Reading and writing by index."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np

from ..dtype import NARROW
from ..overwriting import to_write
from ..registry import backend_for

Array = Any
# Where so many times fewer 16-bit elements are written than there are, each is rounded by itself: no copy of all is made.
_FEW = 1 << 8


def indexing(xp: ModuleType) -> dict[str, Any]:
    def rounded_once(kernel: Callable[..., Array]) -> Callable[..., Array]:
        """`kernel`, which combines elements that share a place, in float32 where they have 16 bits."""

        @wraps(kernel)
        def call(input: Array, *args: Any) -> Array:
            kind, given = input.dtype, [getattr(x, "size", 1) for x in args]
            if kind.itemsize != 2 or kind not in NARROW or max(given) * _FEW < input.size:
                return kernel(input, *args)
            F, out = backend_for(input), to_write(xp, input)
            wide = [F.cast(x, np.float32) if getattr(x, "dtype", None) == kind else x for x in args]
            F.overwrite(out, getattr(F, kernel.__name__)(F.cast(out, np.float32), *wide))
            return out

        return call

    def slice_by(input: Array, index: Any) -> Array:
        return input[index]

    def index_by(input: Array, index: Any) -> Array:
        axis = len(index) - 1 if index.__class__ is tuple else 0
        chosen = index[axis] if index.__class__ is tuple else index
        if (
            hasattr(chosen, "dtype")
            and chosen.dtype.kind != "b"
            and input.ndim
            and (not axis or all(part.__class__ is slice and part == slice(None) for part in index[:axis]))
        ):
            return input.take(chosen, axis)  # of slices along one dimension, twice as fast
        out = input[index]
        # The library may lay out the dimensions of the index first in memory, and views of it would fail.
        return out if out.flags.c_contiguous or not out.ndim else xp.ascontiguousarray(out)

    def index_put(input: Array, index: Any, value: Any) -> Array:
        out = to_write(xp, input)
        out[index] = value
        return out

    def overwrite(out: Array, value: Any) -> None:
        """Write an array, broadcast and converted, or a number to `out`."""
        out[...] = value

    def fill_where(out: Array, mask: Array, value: Any) -> None:
        """Write one value to `out` where `mask`, broadcast, is True."""
        xp.copyto(out, value, where=mask)

    @rounded_once
    def index_put_add(input: Array, index: Any, value: Any) -> Array:
        """`input` with `value` added at `index`; repeated places add up."""
        out = to_write(xp, input)
        xp.add.at(out, index, value)
        return out

    def index_select(input: Array, dim: int, index: Array) -> Array:
        if not input.ndim:
            return input.copy()
        return xp.take(input, index, axis=dim)

    def gather(input: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
        if not index.size:
            return xp.empty(index.shape, input.dtype)
        _require_inside(xp, index, dim, input.shape[dim] if input.ndim else 1)
        if not input.ndim or not index.ndim:
            return input.reshape(-1)[index.reshape(-1)].reshape(index.shape)
        return input[_along(xp, index, dim)]

    def scatter_src(input: Array, dim: int, index: Array, src: Any) -> Array:
        out = to_write(xp, input)
        target, places = _places(xp, out, dim, index)
        target[places] = _like_index(src, index)
        return out

    @rounded_once
    def scatter_add(input: Array, dim: int, index: Array, src: Any) -> Array:
        out = to_write(xp, input)
        target, places = _places(xp, out, dim, index)
        xp.add.at(target, places, _like_index(src, index))
        return out

    @rounded_once
    def scatter_reduce_by(
        input: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool
    ) -> Array:
        out = to_write(xp, input)
        target, places = _places(xp, out, dim, index)
        combine = {"prod": xp.multiply, "amax": xp.maximum, "amin": xp.minimum}[reduce]
        if not include_self:
            target[places] = 1 if reduce == "prod" else _like_index(src, index)
        combine.at(target, places, _like_index(src, index))
        return out

    def embedding_rows(input: Array, indices: Array, padding_idx: int | None = None) -> Array:
        return xp.take(input, indices, axis=0)

    def compressed_product(
        starts: Array, places: Array, values: Array, dense: Array, rows: int, by_row: bool
    ) -> Array:
        """(rows, M): the matrix of `values` (nnz,), line by line, @ dense (K, M): by_row, lines are rows and `places` columns."""
        lines = numbered(starts[1:] - starts[:-1])[0]
        owners, others = (lines, places) if by_row else (places, lines)
        products = values[:, None] * dense[others]
        return backend_for(products).embedding_backward(products, owners.astype(np.int64), rows, None)

    def nonzero(input: Array) -> Array:
        if not input.ndim:
            return xp.empty((int(input != 0), 0), xp.int64)
        return xp.stack(xp.nonzero(input)).T  # places of one dimension lie one after another

    return {
        "slice_by": slice_by, "index_by": index_by, "index_put": index_put, "overwrite": overwrite, "fill_where": fill_where, "index_put_add": index_put_add,
        "index_select": index_select, "gather": gather, "scatter_src": scatter_src, "scatter_add": scatter_add,
        "scatter_reduce_by": scatter_reduce_by, "embedding_rows": embedding_rows,
        "nonzero": nonzero, "compressed_product": compressed_product,
    }  # fmt: skip


def _along(xp: ModuleType, index: Array, dim: int) -> tuple[Array, ...]:
    """Advanced index that walks `index` along `dim` and counts the other dimensions."""
    dim %= index.ndim or 1
    grid = []
    for axis, size in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[axis] = size
        grid.append(index if axis == dim else xp.arange(size).reshape(shape))
    return tuple(grid)


def _require_inside(xp: ModuleType, index: Array, dim: int, size: int) -> None:
    """`RuntimeError` when an index on the host is negative or too large; what is on a GPU is not waited for."""
    if xp is np and index.size and (index.min() < 0 or index.max() >= size):
        bad = index[(index < 0) | (index >= size)][0]
        raise RuntimeError(
            f"index {bad} is out of bounds for dimension {dim} with size {size} (index out of range)"
        )


def _places(xp: ModuleType, out: Array, dim: int, index: Array) -> tuple[Array, Any]:
    """`out` and the index into it; with one dimension where one of them has none."""
    _require_inside(xp, index, dim, out.shape[dim] if out.ndim else 1)
    if not out.ndim or not index.ndim or not index.size:
        return out.reshape(-1), index.reshape(-1)
    return out, _along(xp, index, dim)


def _like_index(src: Any, index: Array) -> Any:
    """The part of `src` that `index` covers (PyTorch lets `src` be larger)."""
    if getattr(src, "ndim", 0) and (not index.ndim or not index.size):
        return src.reshape(-1)[: index.size]
    return src[tuple(slice(n) for n in index.shape)] if getattr(src, "ndim", 0) else src


def numbered(counts: Array) -> tuple[Array, Array]:
    """(i repeated counts[i] times, and within these the numbers from 0): both (the sum of `counts` (n,),) int64."""
    ends = np.cumsum(counts)
    places = np.arange(int(ends[-1]) if len(counts) else 0, like=counts)
    if isinstance(counts, np.ndarray):
        owner = np.repeat(np.arange(len(counts)), counts)
    else:  # CuPy repeats by numbers of the host only
        owner = np.searchsorted(ends, places, side="right")
    return owner, places - (ends - counts)[owner]
