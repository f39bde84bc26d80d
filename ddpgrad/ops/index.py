"""Indexing, gathering and scattering."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from ..backend import dtype as dtypes
from ..backend.registry import backend_for, to_device
from .declare import TensorLike, op, primitive
from .explain import require_one_kind
from .reduce import wrap_dim
from .samples import calls


def raw_index(input: Tensor, index: Any) -> Any:
    """An index into `input` as NumPy wants it: arrays for tensors and lists, tuples of what was given."""
    if isinstance(index, tuple):
        return tuple([_raw_part(input, part) for part in index])
    return _raw_part(input, index)


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
    if index.__class__ is tuple:
        index = raw_index(input, index)
        if is_mixed(index):
            first, then = split_mixed(index)
            return getitem(getitem(input, first), then)
    return getitem(input, index)


def _adapt_getitem(input: Tensor, index: Any) -> tuple[Any, ...]:
    if index.__class__ is int or index.__class__ is slice:
        return input, (index, Ellipsis)
    index = raw_index(input, index)
    return input, with_ellipsis(index) if is_basic(index) else index


def with_ellipsis(index: Any) -> tuple[Any, ...]:
    """A basic index that selects an array also when it names one element, where NumPy has a scalar."""
    if index.__class__ is not tuple:
        return (index, Ellipsis) if index is not Ellipsis else (index,)
    return index if Ellipsis in index else (*index, Ellipsis)


@primitive(
    grads={"input": lambda F, g, input_shape, index: F.place(g, input_shape, index)},
    adapt=_adapt_getitem,
    view=True,
    samples=lambda rng: [
        ((rng.standard_normal((3, 4, 2)), i), {})
        for i in (
            1,
            slice(1, None),
            (Ellipsis, 0),
            (slice(None), None, slice(None, None, 2)),
            np.array([0, 2, 0]),
            (slice(None), np.array([[1, 1], [0, 3]])),
            np.arange(24).reshape(3, 4, 2) % 2 == 0,
        )
    ],
    reference=lambda x, i: x[i],
    method=False,
    grad_name="IndexBackward0",
)
def getitem(F: Any, input: Tensor, index: Any) -> Tensor:
    """`input[index]` by NumPy's rules for the order of dimensions."""
    ...


@op(
    grads={"g": lambda F, g, index: F.getitem(g, index)},
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
)
def index_put(F: Any, input: Tensor, index: Any, value: TensorLike) -> Tensor:
    """`input` with `value`, broadcast, at `index`."""
    ...


def _np_put(x: Any, index: Any, value: Any) -> Any:
    out = x.copy()
    out[index] = value
    return out


def _index_samples(rng: Any) -> Any:
    x = rng.standard_normal((3, 4))
    yield (x, 0, np.array([2, 0, 0])), {}
    yield (x, 1, np.array([3, 1])), {}


@primitive(
    grads={
        "input": lambda F, g, input_shape, dim, index: F.place(
            g, input_shape, (slice(None),) * dim + (index,)
        )
    },
    adapt=lambda input, dim, index: (
        input,
        wrap_dim("index_select", dim, input.ndim),
        raw_index(input, index),
    ),
    samples=_index_samples,
    reference=lambda x, d, i: np.take(x, i, axis=d),
)
def index_select(F: Any, input: Tensor, dim: int, index: Any) -> Tensor:
    """Slices `index` of dimension `dim`."""
    ...


def _gather_samples(rng: Any) -> Any:
    x = rng.standard_normal((3, 4))
    yield (x, 1, np.array([[0, 3], [1, 1], [2, 0]])), {}
    yield (x, 0, np.array([[2, 0, 1, 1]])), {}


def _positions(input: Tensor, index: Any) -> Any:
    """`index` as an array where `input` is; one without dimensions stays an array."""
    return (
        _beside(input, index._array)
        if isinstance(index, Tensor) and not index.ndim
        else raw_index(input, index)
    )


def _adapt_gather(input: Tensor, dim: int, index: Any) -> tuple[Any, ...]:
    index = _positions(input, index)
    if index.ndim != input.ndim:
        raise RuntimeError(
            f"gather(): Index tensor must have the same number of dimensions as input tensor, got {index.ndim} "
            f"and {input.ndim}"
        )
    return input, wrap_dim("gather", dim, input.ndim), index


@primitive(
    grads={
        "input": lambda F, g, input_shape, dim, index: F.scatter_add(
            F.new_zeros(g, input_shape), dim, index, g
        )
    },
    adapt=_adapt_gather,
    samples=_gather_samples,
    reference=lambda x, d, i: np.take_along_axis(x, i, d),
)
def gather(F: Any, input: Tensor, dim: int, index: Any) -> Tensor:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on."""
    ...


def _adapt_scatter(input: Tensor, dim: int, index: Any, src: TensorLike) -> tuple[Any, ...]:
    return input, wrap_dim("scatter", dim, input.ndim), _positions(input, index), src


def _np_scatter_add(x: Any, d: int, i: Any, src: Any) -> Any:
    out = x.copy()
    for place in np.ndindex(i.shape):
        target = list(place)
        target[d] = i[place]
        out[tuple(target)] += src[place]
    return out


@primitive(
    grads={
        "input": lambda F, g: g,
        "src": lambda F, g, dim, index, src_shape: _src_grad(F, g, dim, index, src_shape),
    },
    adapt=_adapt_scatter,
    samples=lambda rng: [
        ((x, d, i, rng.standard_normal((3, 4))), {}) for (x, d, i), _ in _gather_samples(rng)
    ],
    reference=_np_scatter_add,
    inplace=True,
)
def scatter_add(F: Any, input: Tensor, dim: int, index: Any, src: Tensor) -> Tensor:
    """`input` with the elements of `src` added at the places `index` along `dim`."""
    ...


def _src_grad(F: Any, g: Any, dim: int, index: Any, src_shape: Any) -> Any:
    out = F.gather(g, dim, index)
    widths = [(0, n - m) for n, m in zip(src_shape, index.shape, strict=True)]
    return F.constant_pad(out, widths, 0.0) if any(high for _, high in widths) else out


@primitive(
    grads={
        "input": lambda F, g, dim, index: F.scatter(g, dim, index, 0.0),
        "src": lambda F, g, dim, index, src_shape: _src_grad(F, g, dim, index, src_shape),
    },
    adapt=_adapt_scatter,
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), 1, np.array([[0, 3], [1, 2], [2, 0]]), rng.random((3, 2))), {})
    ],
    reference=lambda x, d, i, s: _np_scatter(x, d, i, s),
    inplace=True,
)
def scatter(F: Any, input: Tensor, dim: int, index: Any, src: TensorLike) -> Tensor:
    """`input` with the elements of `src` at the places `index` along `dim`."""
    ...


def _np_scatter(x: Any, d: int, i: Any, s: Any) -> Any:
    out = x.copy()
    np.put_along_axis(out, i, s, d)
    return out


@primitive(
    grads={
        "input": lambda F, g, indices, input_shape, padding_idx: F.embedding_backward(
            g, indices, input_shape[0], padding_idx
        )
    },
    adapt=lambda input, indices, padding_idx=None: (input, _indices(indices, input), padding_idx),
    samples=lambda rng: [((rng.standard_normal((5, 3)), np.array([[0, 4, 4], [2, 1, 0]])), {})],
    reference=lambda w, i: w[i],
    method=False,
)
def embedding(F: Any, input: Tensor, indices: Any, padding_idx: int | None = None) -> Tensor:
    """Rows `indices` of the table `input` (rows, width); no gradient goes to row `padding_idx`."""
    ...


def _indices(indices: Any, table: Tensor) -> Any:
    array, rows = indices._array if isinstance(indices, Tensor) else indices, table.shape[0]
    require_one_kind("embedding", table._array, array)
    if array.dtype.kind not in "iu":
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but "
            f"got {array.dtype} instead (while checking arguments for embedding)"
        )
    if isinstance(array, np.ndarray) and array.size and (array.min() < 0 or array.max() >= rows):
        bad = array[(array < 0) | (array >= rows)][0]
        raise IndexError(f"embedding(): index out of range in self: {bad} with a table of {rows} rows")
    return array


@op(
    grads={"g": lambda F, g, indices, padding_idx: _embedding_again(F, g, indices, padding_idx)},
    adapt=lambda g, indices, num_embeddings, padding_idx=None: (
        g,
        raw_index(g, indices),
        num_embeddings,
        padding_idx,
    ),
    samples=lambda rng: [((rng.standard_normal((2, 3, 4)), np.array([[0, 4, 4], [2, 1, 0]]), 5), {})],
    reference=lambda g, i, n: _np_embedding_backward(g, i, n),
    method=False,
)
def embedding_backward(
    F: Any, g: Tensor, indices: Any, num_embeddings: int, padding_idx: int | None = None
) -> Tensor:
    """The gradient of the table: rows of `g` (*, width) added up by index."""
    out = F.index_put_add(F.new_zeros(g, (num_embeddings, g.shape[-1])), indices, g)
    if padding_idx is not None:
        out[padding_idx] = 0
    return out


def _embedding_again(F: Any, g: Any, indices: Any, padding_idx: int | None) -> Any:
    if padding_idx is not None:
        g = F.index_put(g, padding_idx, 0.0)
    return F.embedding(g, indices)


def _np_embedding_backward(g: Any, indices: Any, rows: int) -> Any:
    out = np.zeros((rows, g.shape[-1]))
    np.add.at(out, indices, g)
    return out


@primitive(
    samples=lambda rng: [((np.array([[1, 0], [2, 3]]),), {})],
    reference=lambda x: np.argwhere(x),
    method=False,
)
def nonzero(F: Any, input: Tensor) -> Tensor:
    """Indices of the elements that are not zero, one row each."""
    ...


@primitive(
    adapt=lambda input, dim=-1, descending=False: (input, wrap_dim("argsort", dim, input.ndim), descending),
    samples=calls((0,), (-1, True)),
    reference=lambda x, d=-1, descending=False: np.argsort(-x if descending else x, axis=d, kind="stable"),
    method=False,
)
def argsort(F: Any, input: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Indices that sort along `dim`; equal elements keep their order."""
    ...
