"""Reads and writes of slices, positions and masks: `index_add`, `index_put`, `take`, `masked_select` …"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ..creation.factories import as_element
from ..dispatch.dtype_lists import refuse_dtypes
from ..dispatch.tensor_function import tensor_function
from ..dispatch.views import owned
from ..dispatch.vocabulary import VOCABULARY as F
from ..elementwise import binary, unary
from ..elementwise.arithmetic import as_element_of, floor_divide, scaled
from ..reduction.reduce import wrap_dim
from ..shape import shape
from ..shape.diagonal import require_shape
from ..shape.stacking import broadcast_shapes
from .gather import gather, length_of, positions, require_inside
from .index import select, subscript
from .scatter import REDUCTIONS, scatter_reduce
from .setitem import copy_


def _slices(name: str, input: Tensor, dim: int, index: Tensor) -> tuple[int, tuple[Any, ...]]:
    """`dim` counted from the front, and the index of slices `index` of it."""
    dim = wrap_dim(name, dim, input.ndim)
    places = positions(name, input, index)
    if places.ndim > 1:
        raise IndexError(f"{name}(): Index should have dimension 1 or 0 (got {places.ndim})")
    error = RuntimeError if name == "index_add" and input.ndim > 1 else IndexError  # as in PyTorch
    require_inside(name, places, dim, length_of(input, dim), error)
    return dim, (slice(None),) * dim + (places.reshape(-1),)


def _require_int64(name: str, index: Tensor) -> None:
    if isinstance(index, Tensor) and index.dtype is not dtypes.int64:
        error = IndexError if name == "index_fill" else RuntimeError
        raise error(f"{name}(): Expected a long tensor for index, but got {index.dtype.name}")


def _require_source(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}(): self and source expected to have the same dtype, but got (self) {input.dtype.scalar_type} and "
            f"(source) {source.dtype.scalar_type}: they must have the same scalar type"
        )
    rest, want = list(source.shape), list(input.shape)
    del rest[dim : dim + 1], want[dim : dim + 1]
    if name == "index_add":
        if source.ndim != input.ndim or rest != want:
            raise RuntimeError(
                "index_add(): source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                f"self.shape = {list(input.shape)} source.shape = {list(source.shape)}"
            )
    elif source.ndim and source.ndim != input.ndim and input.ndim:
        error = IndexError if name == "index_copy" else RuntimeError
        raise error(
            f"{name}(): When source and destination are not scalars, their dimensionality must match. Source "
            f"dimensionality ({source.ndim}), destination dimensionality ({input.ndim})"
        )
    count = index.numel()
    if count != length_of(source, min(dim, max(source.ndim - 1, 0))):
        error = IndexError if name == "index_copy" else RuntimeError
        raise error(
            f"{name}(): Number of indices ({count}) should be equal to source.size(dim): "
            f"({length_of(source, min(dim, max(source.ndim - 1, 0)))}), for dim: {dim}"
        )
    if rest != want:
        raise RuntimeError(
            f"{name}(): Source/destination tensor must have same slice shapes. Destination slice shape: {want} at "
            f"dimension {dim} and source slice shape: {rest} at dimension 0."
        )


def _written_by_slices(
    name: str, write: Any, input: Tensor, dim: int, index: Tensor, source: Tensor
) -> Tensor:
    if name == "index_copy":
        _require_int64(name, index)
    wrapped, places = _slices(name, input, dim, index)
    _require_source(name, input, wrapped, index, source)
    if not input.ndim:
        return owned(shape.reshape(write(shape.reshape(input, 1), places, shape.reshape(source, -1)), ()))
    return write(input, places, source)


@tensor_function(inplace=True, out=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """`input` with alpha times the slices of `source` added to its slices `index` of `dim`."""
    source = scaled("index_add", source, source, as_element_of(alpha, input.dtype))
    return _written_by_slices("index_add", F.index_put_add, input, dim, index, source)


@tensor_function(inplace=True, out=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`input` with its slices `index` of `dim` replaced by those of `source`."""
    return _written_by_slices("index_copy", F.index_put, input, dim, index, source)


@tensor_function(inplace=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`input` with one value in its slices `index` of `dim`."""
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    _require_int64("index_fill", index)
    if isinstance(index, Tensor) and not index.is_meta:
        length = length_of(input, wrap_dim("index_fill", dim, input.ndim))
        index = binary.where(
            index < 0, index + length, index
        )  # from the end, which its neighbours do not take
    dim, places = _slices("index_fill", input, dim, index)
    if not isinstance(value, Tensor):
        value = as_element(value, input.dtype)  # which refuses what does not fit
    if isinstance(value, Tensor):
        value = value.to(input.dtype)
        if value.requires_grad:  # a place that is named twice counts once
            chosen = F.index_put(
                input.new_zeros(length_of(input, dim), dtype=dtypes.bool_), places[-1:], True
            )
            sizes = [-1 if d == dim else 1 for d in range(input.ndim)]
            return binary.where(shape.reshape(chosen, sizes), value, input)
    if not input.ndim:
        return owned(shape.reshape(F.index_put(shape.reshape(input, 1), places, value), ()))
    return F.index_put(input, places, value)


@tensor_function(inplace=True, out=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`scatter_reduce` by whole slices: 'prod', 'mean', 'amax' or 'amin'."""
    if reduce not in REDUCTIONS[1:]:
        raise RuntimeError(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
        )
    refuse_dtypes("index_reduce", "bc", (input, source))
    wrapped, _ = _slices("index_reduce", input, dim, index)
    _require_source("index_reduce", input, wrapped, index, source)
    if input.ndim:
        index = shape.reshape(index, (1,) * wrapped + (-1,) + (1,) * (input.ndim - wrapped - 1))
        index = shape.expand(index, source.shape)
    elif source.ndim != index.ndim:
        source, index = shape.reshape(source, ()), shape.reshape(index, ())
    return scatter_reduce(input, wrapped, index, source, reduce, include_self=include_self)


# -- places by index, by number over all, by mask ----------------------------------------------


def _linear(name: str, input: Tensor, index: Tensor) -> Tensor:
    _require_int64(name, index)
    places = positions(name, input, index)
    total = input.numel()
    if isinstance(places, np.ndarray) and places.size and (places.min() < -total or places.max() >= total):
        bad = places[(places < -total) | (places >= total)][0]
        raise IndexError(
            f"out of range: {name}() tried to access index {bad} on a tensor of {total} elements."
        )
    return index


@tensor_function(inplace=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with the elements of `source` at the places `index` of all its elements in order."""
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {input.dtype.name} and "
            f"source.dtype = {source.dtype.name}"
        )
    if source.numel() != index.numel():
        raise IndexError(
            f"put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.numel()}, index.numel() = {index.numel()}"
        )
    _linear("put", input, index)
    write = F.index_put_add if accumulate else F.index_put
    flat = write(shape.reshape(input, -1), (shape.reshape(index, -1),), shape.reshape(source, -1))
    return owned(shape.reshape(flat, input.shape))


@tensor_function(out=True)
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at the places `index` of all elements in order."""
    flat = shape.reshape(input, -1)
    return owned(
        shape.reshape(F.index_by(flat, shape.reshape(_linear("take", input, index), -1)), index.shape)
    )


@tensor_function(out=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` with input and indices broadcast against each other in the other dimensions; without `dim`, over all."""
    if indices.dtype.name != "int64":
        raise RuntimeError(
            f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype.name}"
        )
    if dim is None:
        return gather(shape.reshape(input, -1), 0, shape.reshape(indices, -1))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {input.ndim} "
            f"dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = wrap_dim("take_along_dim", dim, input.ndim)
    common = np.broadcast_shapes(*((*t.shape[:dim], 1, *t.shape[dim + 1 :]) for t in (input, indices)))
    indices = binary.where(indices < 0, indices + length_of(input, dim), indices)
    parts = [shape.expand(t, (*common[:dim], t.shape[dim], *common[dim + 1 :])) for t in (input, indices)]
    return gather(parts[0], dim, parts[1])


def _require_mask(name: str, mask: Tensor) -> None:
    if mask.dtype.name != "bool":
        raise RuntimeError(
            f"{name} only supports boolean masks: expected BoolTensor for mask, got {mask.dtype.name}"
        )


@tensor_function(out=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask`, broadcast against `input`, is True, as a vector."""
    _require_mask("masked_select", mask)
    if input._array.shape != mask._array.shape:
        size = tuple(broadcast_shapes(input.shape, mask.shape))
        input, mask = shape.expand(input, size), shape.expand(mask, size)
    return F.index_by(input, mask)


@tensor_function(inplace=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the elements of `source`, in order, where `mask` is True."""
    _require_mask("masked_scatter_", mask)
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {input.dtype.name} and {source.dtype.name}"
        )
    size = tuple(broadcast_shapes(input.shape, mask.shape))
    input, mask = shape.expand(input, size), shape.expand(mask, size)
    if input.is_meta:
        return unary.clone(input)
    count = int(mask.sum())
    if count > source.numel():
        raise RuntimeError(
            "masked_scatter: Number of elements of source < number of ones in mask: "
            f"{source.numel()} for {count}"
        )
    if not size:
        return binary.where(mask, shape.reshape(source, -1)[0], input) if count else unary.clone(input)
    return F.index_put(input, mask, shape.narrow(shape.reshape(source, -1), 0, 0, count))


@tensor_function()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` with `src` as the slice `index` of `dim`."""
    return _with_region("select_scatter", input, src, lambda out: select(out, dim, index))


@tensor_function(out=True)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of `input` with `src` at start:end:step of `dim`."""
    dim = wrap_dim("slice_scatter", dim, input.ndim)
    place = (slice(None),) * dim + (slice(start, end, step),)
    return _with_region("slice_scatter", input, src, lambda out: subscript(out, place))


def _with_region(name: str, input: Tensor, src: Tensor, view: Any) -> Tensor:
    out = unary.clone(input)
    region = view(out)
    require_shape(name, region, src)
    copy_(region, src)
    return out


@tensor_function()
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """`nonzero` cut or filled up to `size` rows."""
    if input.is_meta:
        return input.new_empty((size, input.ndim), dtype=dtypes.int64)
    found = F.nonzero(input)[:size]
    return shape.constant_pad(found, ((0, size - found.shape[0]), (0, 0)), fill_value)


@tensor_function(method=False)
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like `input` with one value, a number or a tensor without dimensions."""
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"fill only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions."
        )
    return F.index_put(input, (...,), value.to(input.dtype) if isinstance(value, Tensor) else value)


@tensor_function()
def argwhere(input: Tensor) -> Tensor:
    """Indices of the elements that are not zero, one row each."""
    return F.nonzero(input)


@tensor_function(method=False)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Places among all elements in order, as one tensor of places for each dimension of `shape`."""
    if indices.dtype.category != 1:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
    if wrong := [n for n in sizes if not isinstance(n, int)]:
        raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(wrong[0])}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    out: list[Tensor] = []
    indices = indices.to(dtypes.int64)
    for n in reversed(sizes):
        out.append(binary.remainder(indices, n))
        indices = floor_divide(indices, n)
    return tuple(reversed(out))
