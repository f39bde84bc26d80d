"""Indexing, gathering and scattering."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...backend.registry import backend_for, to_device
from ...core.tensor import Tensor
from ..dispatch.declare import TensorLike, composite, op, primitive
from ..dispatch.explain import require_one_kind
from ..dispatch.samples import calls
from ..reduction.reduce import wrap_dim


def raw_index(input: Tensor, index: Any, ndim: int | None = None) -> Any:
    """An index as NumPy wants it, beside `input`: arrays for tensors and lists, tuples of what was given.

    ndim: how many dimensions what is indexed has, those of `input` if not given.
    """
    if isinstance(index, list) and any(map(_is_several, index)):
        warnings.warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq].",
            stacklevel=3,
        )
        index = tuple(index)
    if not isinstance(index, tuple):
        return _raw_part(input, index)
    parts = [_raw_part(input, part) for part in index]
    if any(part is Ellipsis for part in parts) and sum(map(_taken, parts)) == (
        input._array.ndim if ndim is None else ndim
    ):
        # It stands for no dimension; NumPy would let it separate the arrays on its sides.
        parts = [part for part in parts if part is not Ellipsis]
    return tuple(parts)


def _taken(part: Any) -> int:
    """How many dimensions of what is indexed a part of a raw index is for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if getattr(part, "dtype", None) == np.bool_ else 1


def _is_several(part: Any) -> bool:
    """True for a part of a list that makes PyTorch take the list for a tuple."""
    return part is None or part is Ellipsis or isinstance(part, (list, tuple, slice, Tensor, np.ndarray))


def _raw_part(input: Tensor, part: Any) -> Any:
    kind = part.__class__
    if kind is slice or kind is int:
        return part
    if isinstance(part, Tensor):
        array = part._array
        if array.dtype == np.uint8:
            return _beside(input, array.astype(np.bool_))  # PyTorch's old masks
        if dtypes.BY_NUMPY[array.dtype].category > 1:
            raise IndexError(
                f"tensors used as indices must be long, int, byte or bool tensors, got {part.dtype.name}"
            )
        # A 0-dimensional integer tensor selects, as an int does.
        return int(array) if array.ndim == 0 and array.dtype.kind in "iu" else _beside(input, array)
    if kind is bool:
        return _beside(input, np.asarray(part))
    if isinstance(part, (list, range)):
        part = np.asarray(part, dtype=np.int64 if not len(part) else None)
    return _beside(input, part) if isinstance(part, np.ndarray) else part


def _beside(input: Tensor, index: Any) -> Any:
    """An index array where `input` is: indexes on the host serve tensors on a GPU, not the other way round."""
    array = input._array
    if index.__class__ is array.__class__:
        return index
    home = backend_for(array)
    if home.kind == "cpu":
        require_one_kind("index", array, index)
        return index
    return to_device(index, home.device_of(array))


def is_basic(index: Any) -> bool:
    """True for an index that selects a view: ints, slices, None, Ellipsis."""
    for part in index if isinstance(index, tuple) else (index,):
        kind = part.__class__
        if kind is slice or kind is int or part is None or part is Ellipsis:
            continue
        if not isinstance(part, (int, np.integer)) or kind is bool:
            return False
    return True


def is_mixed(index: Any) -> bool:
    """True for a raw index with both ints and arrays: PyTorch and NumPy order the result differently."""
    return (
        index.__class__ is tuple
        and any(isinstance(p, (int, np.integer)) and not isinstance(p, bool) for p in index)
        and any(hasattr(p, "ndim") and not isinstance(p, np.generic) for p in index)
    )


def split_mixed(index: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A mixed index as two: ints, slices and None first, which give a view; then the arrays in that view."""
    first: list[Any] = []
    then: list[Any] = []
    for part in index:
        if hasattr(part, "ndim") and not isinstance(part, np.generic):
            first += [slice(None)] * (part.ndim if part.dtype == np.bool_ else 1)
            then.append(part)
        else:
            first.append(part)
            if part is Ellipsis:
                then.append(part)
            elif part is None or isinstance(part, slice):
                then.append(slice(None))
    return tuple(first), tuple(then)


def subscript(input: Tensor, index: Any) -> Tensor:
    """`input[index]`: a view for ints and slices, a copy for tensors and lists."""
    kind = index.__class__
    if kind is int:
        if not input._array.ndim:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number"
            )
        return _selected(input, 0, index)
    basic = _slicing(index)
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


def _slicing(index: Any) -> tuple[Any, ...] | None:
    """The usual basic index, of nothing but ints, forward slices, None and one Ellipsis, as `with_ellipsis` has it."""
    if index.__class__ is not tuple:
        index = (index,)
    whole = False
    for part in index:
        kind = part.__class__
        if kind is slice:
            if part.step is not None:
                refuse_negative_steps(part)
        elif part is Ellipsis:
            whole = True
        elif kind is not int and part is not None:
            return None
    return index if whole else (*index, Ellipsis)


def refuse_negative_steps(index: Any) -> None:
    """`ValueError` for a slice that goes backwards, which no view of PyTorch's does."""
    for part in index if index.__class__ is tuple else (index,):
        if part.__class__ is slice and part.step is not None and part.step <= 0:
            raise ValueError("step must be greater than zero")


def with_ellipsis(index: Any) -> tuple[Any, ...]:
    """A basic index that selects an array also when it names one element, where NumPy has a scalar."""
    if index.__class__ is not tuple:
        return (index, Ellipsis) if index is not Ellipsis else (index,)
    return index if Ellipsis in index else (*index, Ellipsis)


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
    region = F.getitem(g, index)
    # NumPy and PyTorch let a value have more leading dimensions of length 1 than the region.
    extra = len(value_shape) - len(region.shape)
    return F.reshape(region, (1,) * extra + tuple(region.shape)) if extra > 0 else region


@primitive(
    grads={
        "input": lambda F, g, index: F.index_put(g, index, 0.0),
        "value": _index_put_value_rule,
    },
    adapt=_adapt_index_put,
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), slice(1, None), rng.standard_normal((2, 4))), {}),
        ((rng.standard_normal((3, 4)), (slice(None), 1), 2.0), {}),
    ],
    reference=lambda x, i, v: _np_put(x, i, v),
    method=False,
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


@primitive(
    samples=lambda rng: [((np.array([[1, 0], [2, 3]]),), {})],
    reference=lambda x: np.argwhere(x),
    method=False,
)
def nonzero(F: Any, input: Tensor) -> Tensor:
    """Indices of the elements that are not zero, one row each."""
    ...


# -- elements and slices by their number along one dimension -----------------------------------


def positions(name: str, input: Tensor, index: Any) -> Any:
    """The raw array of integer tensor `index`, beside `input`."""
    array = index._array if isinstance(index, Tensor) else np.asarray(index)
    dtype = array.dtype
    if dtype.char != "l":  # int64, as it should be
        if not array.size:
            array = array.astype(np.int64)
        elif dtype.kind not in "iu" or dtype.itemsize < 4:
            raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {dtype}")
    return _beside(input, array)


def require_inside(name: str, index: Any, dim: int, size: int) -> None:
    """`IndexError` when an index on the host is negative or too large; what is on a GPU is not waited for."""
    if isinstance(index, np.ndarray) and index.size and (index.min() < 0 or index.max() >= size):
        bad = index[(index < 0) | (index >= size)][0]
        raise IndexError(
            f"{name}(): index {bad} is out of bounds for dimension {dim} with size {size} (index out of range)"
        )


def length_of(input: Tensor, dim: int) -> int:
    """The length of `dim`, where a tensor without dimensions has one element."""
    return input.shape[dim] if input.ndim else 1


def _adapt_index_select(input: Tensor, dim: int, index: Any) -> tuple[Any, ...]:
    dim, places = wrap_dim("index_select", dim, input.ndim), positions("index_select", input, index)
    if places.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, got shape {list(places.shape)}")
    require_inside("index_select", places, dim, length_of(input, dim))
    return input, dim, places.reshape(-1)


@primitive(
    grads={
        "input": lambda F, g, input_shape, dim, index: F.place(
            g, input_shape, (slice(None),) * dim + (index,) if input_shape else (...,)
        )
    },
    adapt=_adapt_index_select,
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), 0, np.array([2, 0, 0])), {}),
        ((rng.standard_normal((3, 4)), 1, np.array([3, 1])), {}),
    ],
    reference=lambda x, d, i: np.take(x, i, axis=d),
)
def index_select(F: Any, input: Tensor, dim: int, index: Any) -> Tensor:
    """Slices `index` of dimension `dim`."""
    ...


def _adapt_gather(input: Tensor, dim: int, index: Any, sparse_grad: bool = False) -> tuple[Any, ...]:
    dim, places = wrap_dim("gather", dim, input._array.ndim), positions("gather", input, index)
    own, wanted = input._array.shape, places.shape
    if own == wanted:
        return input, dim, places, sparse_grad
    if places.size and max(len(wanted), 1) != max(len(own), 1):
        raise RuntimeError(
            f"gather(): Index tensor must have the same number of dimensions as input tensor, got {len(wanted)} and "
            f"{len(own)}"
        )
    if places.size and any(n > m for d, (n, m) in enumerate(zip(wanted, own, strict=False)) if d != dim):
        raise RuntimeError(
            f"gather(): Size does not match: expected index {list(wanted)} to be no larger than self "
            f"{list(own)} apart from dimension {dim}"
        )
    return input, dim, places, sparse_grad


@primitive(
    grads={
        "input": lambda F, g, input_shape, dim, index: F.scatter_add(
            F.new_zeros(g, input_shape), dim, index, g
        )
    },
    adapt=_adapt_gather,
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), 1, np.array([[0, 3], [1, 1], [2, 0]])), {}),
        ((rng.standard_normal((3, 4)), 0, np.array([[2, 0, 1, 1]])), {}),
    ],
    reference=lambda x, d, i: np.take_along_axis(x, i, d),
)
def gather(F: Any, input: Tensor, dim: int, index: Any, sparse_grad: bool = False) -> Tensor:
    """`out[i][j] = input[index[i][j]][j]` for dim 0, and so on; `sparse_grad` changes nothing here."""
    ...
