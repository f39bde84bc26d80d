"""Gathering: elements and slices read by index along one dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import primitive
from ..reduction.reduce import wrap_dim
from .raw_index import beside, index_array


def positions(name: str, input: Tensor, index: Any) -> Any:
    """The raw array of integer tensor `index`, or of what a rule kept of one, beside `input`."""
    array = index_array(index)
    if not hasattr(array, "dtype"):
        array = np.asarray(array)
    dtype = array.dtype
    if dtype.char != "l":  # int64, as it should be
        if not array.size:
            array = array.astype(np.int64)
        elif dtype.kind not in "iu" or dtype.itemsize < 4:
            raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {dtype}")
    return beside(input, array)


def require_inside(name: str, index: Any, dim: int, size: int, error: type[Exception] = IndexError) -> None:
    """`error` when an index on the host is negative or too large; what is on a GPU is not waited for."""
    if isinstance(index, np.ndarray) and index.size and (index.min() < 0 or index.max() >= size):
        bad = index[(index < 0) | (index >= size)][0]
        raise error(
            f"{name}(): index {bad} is out of bounds for dimension {dim} with size {size} (index out of range)"
        )


def length_of(input: Tensor, dim: int) -> int:
    """The length of `dim`, where a tensor without dimensions has one element."""
    return input.shape[dim] if input.ndim else 1


def _adapt_index_select(input: Tensor, dim: int, index: Any) -> tuple[Any, ...]:
    dim, places = wrap_dim("index_select", dim, input.ndim), positions("index_select", input, index)
    if places.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, got shape {list(places.shape)}")
    if not input.ndim and places.size != 1:
        raise RuntimeError(
            f"index_select(): Index to scalar can have only 1 value, got {places.size} value(s)"
        )
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
    over = [d for d, (n, m) in enumerate(zip(wanted, own, strict=False)) if d != dim and n > m]
    if places.size and over:
        raise RuntimeError(
            f"gather(): Size does not match at dimension {over[0]} expected index {list(wanted)} to be no larger than self "
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
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on; `sparse_grad` changes nothing here."""
    ...
