"""Reading and writing by an index, as ops."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from ...backend.registry import backend_for
from ...core.errors import must_be_tensor
from ...core.overrides import ask, is_overridden, overriding
from ...core.tensor import Tensor
from ..dispatch.declare import TensorLike, composite, op, primitive
from ..dispatch.samples import calls
from ..dispatch.vocabulary import VOCABULARY as F
from ..reduction.reduce import wrap_dim
from .raw_index import (
    is_basic,
    is_mixed,
    raw_index,
    refuse_negative_steps,
    slicing,
    split_mixed,
    with_ellipsis,
)


def subscript(input: Tensor, index: Any) -> Tensor:
    """`input[index]`: a view for ints and slices, a copy for tensors and lists."""
    if overriding and is_overridden((input, index), {}):
        return ask(Tensor.__getitem__, (input, index), {})
    kind = index.__class__
    if kind is int:
        if not input._array.ndim:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number"
            )
        return _selected(input, 0, index)
    basic = slicing(index)
    if basic is None:
        given, index = index, raw_index(input, index)
        if is_mixed(index):
            first, then = split_mixed(index)
            return index_by(slice_by(input, with_ellipsis(first)), then)
        if not is_basic(index):
            return index_by(input, given)  # whose tensors are guarded against changes in place
        refuse_negative_steps(index)
        basic = with_ellipsis(index)
    return slice_by(input, basic)


def _index_samples(*indexes: Any) -> Any:
    return lambda rng: [((rng.standard_normal((3, 4, 2)), i), {}) for i in indexes]


@primitive(
    grads={"input": lambda F, g, input_shape, index: F.place(g, input_shape, index)},
    view=True,
    samples=_index_samples((1, ...), (slice(1, None), ...), (Ellipsis, 0), (slice(None), None, slice(None, None, 2), ...)),
    reference=lambda x, i: x[i],
    method=False,
    grad_name="SliceBackward0",
)  # fmt: skip
def slice_by(F: Any, input: Tensor, index: Any) -> Tensor:
    """`input[index]` for ints, slices, None and an Ellipsis in a tuple: a view."""
    ...


@primitive(
    grads={"input": lambda F, g, input_shape, index: F.place(g, input_shape, index)},
    adapt=lambda input, index: (input, raw_index(input, index)),
    samples=_index_samples(
        np.array([0, 2, 0]),
        (slice(None), np.array([[1, 1], [0, 3]])),
        np.arange(24).reshape(3, 4, 2) % 2 == 0,
    ),
    reference=lambda x, i: x[i],
    method=False,
    grad_name="IndexBackward0",
)
def index_by(F: Any, input: Tensor, index: Any) -> Tensor:
    """`input[index]` with arrays in the index, by NumPy's rules for the order of dimensions: a copy."""
    ...


@composite
def getitem(F: Any, input: Any, index: Any) -> Any:
    """`input[index]`, whatever the index."""
    return F.slice_by(input, with_ellipsis(index)) if is_basic(index) else F.index_by(input, index)


def _adapt_select(input: Tensor, dim: int, index: Any) -> tuple[Any, ...]:
    sizes = input._array.shape
    if not sizes:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim("select", dim, len(sizes))
    size, place = sizes[dim], int(index)
    if not -size <= place < size:
        raise IndexError(
            f"select(): index {place} is out of bounds for dimension {dim} with size {size} (tensor of shape "
            f"{list(input.shape)})"
        )
    return input, dim, place


@primitive(
    grads={
        "input": lambda F, g, input_shape, dim, index: F.place(
            g, input_shape, (slice(None),) * dim + (index, Ellipsis)
        )
    },
    adapt=_adapt_select,
    view=True,
    samples=calls((0, 1), (-1, -2)),
    reference=lambda x, d, i: np.take(x, i, axis=d),
)
def select(F: Any, input: Tensor, dim: int, index: int) -> Tensor:
    """The slice `index` of `dim`, without that dimension; a view."""
    ...


_selected = select


@op(
    grads={"g": lambda F, g, index: F.getitem(g, index)},
    adapt=lambda g, shape, index: (g, shape, raw_index(g, index, len(shape))),
    samples=lambda rng: [((rng.standard_normal((2, 4)), (3, 4), slice(1, None)), {})],
    reference=lambda g, shape, index: np.pad(g, ((1, 0), (0, 0))),
    method=False,
)
def place(F: Any, g: Tensor, shape: Any, index: Any) -> Tensor:
    """Zeros of `shape` with `g` added at `index`: the gradient of `getitem`."""
    zeros = F.new_zeros(g, tuple(shape))
    if is_basic(index):
        zeros[index] = g
        return zeros
    return F.index_put_add(zeros, index, g)


def _adapt_index_put(input: Tensor, index: Any, value: TensorLike) -> tuple[Any, ...]:
    return input, raw_index(input, index), value


def _name_of_write(index: Any) -> str:
    """What PyTorch calls the node of a write: of all, of a part that is a view, or of other places."""
    if index is Ellipsis or (index.__class__ is tuple and len(index) == 1 and index[0] is Ellipsis):
        return "torch::autograd::CopyBackwards"
    return "torch::autograd::CopySlices" if is_basic(index) else "IndexPutBackward0"


def _index_put_value_rule(F: Any, g: Any, index: Any, value_shape: Any) -> Any:
    if backend_for(getattr(g, "_array", g)).kind == "meta":  # how many places a mask has is not known
        return F.new_zeros(g, tuple(value_shape))
    region = F.getitem(g, index)
    # NumPy and PyTorch let a value have more leading dimensions of length 1 than the region.
    extra = len(value_shape) - len(region.shape)
    return F.reshape(region, (1,) * extra + tuple(region.shape)) if extra > 0 else region


def _index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with `values` at the places that the tensors `indices`, one a dimension, name; or added there."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            f"index_put(): argument 'indices' must be tuple of Tensors, not {type(indices).__name__}"
        )
    for place, i in enumerate(indices):
        if i is not None and not isinstance(i, Tensor):
            raise TypeError(f"expected Tensor as element {place} in argument 0, but got {type(i).__name__}")
    if not isinstance(values, Tensor):
        raise must_be_tensor("index_put", "values", 1, values)
    if values.dtype is not input.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {input.dtype.name} for the destination and "
            f"{values.dtype.name} for the source."
        )
    places = tuple([slice(None) if i is None else i for i in indices])
    write = F.index_put_add if accumulate else F.index_put
    return write(input, places, values.to(input.device) if not values.ndim else values)


@primitive(
    public=_index_put,
    grads={"input": lambda F, g, index: F.index_put(g, index, 0.0), "value": _index_put_value_rule},
    adapt=_adapt_index_put,
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), slice(1, None), rng.standard_normal((2, 4))), {}),
        ((rng.standard_normal((3, 4)), (slice(None), 1), 2.0), {}),
    ],
    reference=lambda x, i, v: _np_put(x, i, v),
    inplace=True,
    grad_name=_name_of_write,
)
def index_put(F: Any, input: Tensor, index: Any, value: TensorLike) -> Tensor:
    """`input` with `value`, broadcast, at `index`."""
    ...


def _np_put(x: Any, index: Any, value: Any) -> Any:
    out = x.copy()
    out[index] = value
    return out


@primitive(
    grads={"input": lambda F, g: g, "value": _index_put_value_rule},
    adapt=_adapt_index_put,
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), np.array([0, 2, 0]), rng.standard_normal((3, 4))), {})
    ],
    reference=lambda x, i, v: _np_put_add(x, i, v),
    method=False,
    grad_name="IndexPutBackward0",
)
def index_put_add(F: Any, input: Tensor, index: Any, value: TensorLike) -> Tensor:
    """`input` with `value`, broadcast, added at `index`; repeated places add up."""
    ...


def _np_put_add(x: Any, index: Any, value: Any) -> Any:
    out = x.copy()
    np.add.at(out, index, value)
    return out


@overload
def _nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def _nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def _nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Any:
    """Indices of the elements that are not zero: one row each, or with `as_tuple` one vector per dimension."""
    if not as_tuple:
        return F.nonzero(input, out=out)
    if out is not None:
        raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
    return F.unbind(F.nonzero(F.reshape(input, (1,)) if not input.ndim else input), 1)


@primitive(
    public=_nonzero,
    samples=lambda rng: [((np.array([[1, 0], [2, 3]]),), {})],
    reference=lambda x: np.argwhere(x),
)
def nonzero(F: Any, input: Tensor) -> Tensor:
    """Indices of the elements that are not zero, one row each."""
    ...
