"""COO: a raw array that holds some of its elements, by their coordinates, in two ordinary arrays.

It stands where other raw arrays stand: in a Tensor, in a walk of backward, in a node of the graph. It has their shape and
dtype and the operators of arithmetic, and no memory in strides: what asks for that gets `Unsupported`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from ..device import Device
from ..registry import SparseArray, Unsupported, backend_for, to_device

Array = Any


class COO(SparseArray):
    """Elements `values` (nnz, *dense dimensions) at `indices` (sparse dimensions, nnz); all others are 0.

    Where places occur twice their values add up. coalesced: they do not, and are in order. NumPy's functions
    (`np.unique` and its like) reach CuPy's arrays by themselves. The classes tell where the two arrays lie.
    """

    __slots__ = ("__weakref__", "coalesced", "indices", "shape", "values")
    strides = ()
    flags = SimpleNamespace(c_contiguous=False, f_contiguous=False, carray=False, writeable=True)
    __array_priority__ = 1000  # CuPy leaves `array + sparse` to it
    base = None
    indices: Array
    values: Array
    shape: tuple[int, ...]
    coalesced: bool

    def __init__(self, indices: Array, values: Array, shape: Sequence[int], coalesced: bool = False) -> None:
        self.indices, self.values, self.shape = indices, values, tuple(shape)
        self.coalesced = coalesced or len(values) < 1

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.values.itemsize

    @property
    def nnz(self) -> int:
        return len(self.values)

    @property
    def sparse_dim(self) -> int:
        return len(self.indices)

    def __getattr__(self, name: str) -> NoReturn:
        raise Unsupported(
            f"a sparse tensor of shape {list(self.shape)} has no {name}: this function does not take layout "
            "torch.sparse_coo; call to_dense() first"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Unsupported(
            f"a sparse tensor of shape {list(self.shape)} is no array in memory: this function does not take layout "
            "torch.sparse_coo; call to_dense() first"
        )

    def __reduce__(self) -> Any:
        return coo, (self.indices, self.values, self.shape, self.coalesced)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> COO:
        if not _is_everything(index):
            raise Unsupported("a sparse tensor is not read by index here; call to_dense() first")
        return self

    def item(self) -> Any:
        """The only element, as a Python number."""
        return self.dense().item()

    # -- other forms -------------------------------------------------------------------------

    def like(self, indices: Array, values: Array, shape: Sequence[int], coalesced: bool = False) -> COO:
        """Another array on the same kind of device."""
        return self.__class__(indices, values, shape, coalesced)

    def with_values(self, values: Array) -> COO:
        """The same places with other values."""
        return self.like(self.indices, values, self.shape, self.coalesced)

    def copy(self) -> COO:
        return self.like(self.indices.copy(), self.values.copy(), self.shape, self.coalesced)

    def astype(self, dtype: Any, copy: bool = True) -> COO:
        if self.dtype == dtype:
            return self.copy() if copy else self
        return self.with_values(backend_for(self.values).cast(self.values, dtype))

    def to(self, device: Device) -> COO:
        """On another device."""
        return coo(
            to_device(self.indices, device), to_device(self.values, device), self.shape, self.coalesced
        )

    def keys(self) -> Array:
        """One int64 for each stored element: its place among the sparse dimensions, in order of the dimensions."""
        out, step = np.zeros_like(self.indices, shape=(self.nnz,)), 1
        for dim in reversed(range(self.sparse_dim)):
            out += self.indices[dim] * step
            step *= self.shape[dim]
        return out

    def coalesce(self) -> COO:
        """The same with every place once, in order; itself where that is so."""
        if self.coalesced:
            return self
        keys, first, owner = np.unique(self.keys(), return_index=True, return_inverse=True)
        if len(keys) == self.nnz:
            return self.like(self.indices[:, first], self.values[first], self.shape, True)
        values = added_rows(self.values, owner.reshape(-1), len(keys))
        return self.like(self.indices[:, first], values, self.shape, True)

    def dense(self) -> Array:
        """All elements, as an ordinary array of its own."""
        F = backend_for(self.values)
        if not self.sparse_dim:
            return self.values.sum(0).astype(self.dtype)
        out = F.new_zeros(self.values, self.shape)
        whole = self.coalesce()
        out[tuple(whole.indices)] = whole.values
        return out

    def at(self, indices: Array) -> tuple[Array, Array]:
        """(the elements at `indices` (sparse dimensions, n), which of them are stored)."""
        own, asked = self.coalesce(), self.like(indices, indices[0], self.shape)
        if not own.nnz:
            empty = backend_for(self.values).new_zeros(
                self.values, (len(asked.values), *self.values.shape[1:])
            )
            return empty, np.zeros_like(asked.values, dtype=bool)
        keys, wanted = own.keys(), asked.keys()
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        stored = keys[places] == wanted
        values = own.values[places]
        values[~stored] = 0
        return values, stored

    # -- layout ------------------------------------------------------------------------------

    def transpose(self, dims: Sequence[int]) -> COO:
        """The dimensions in another order, as a copy; sparse and dense ones do not mix."""
        n = self.sparse_dim
        if any(d >= n for d in dims[:n]):
            raise RuntimeError(
                f"transpose of a sparse tensor: the first {n} dimensions are sparse, the others dense, and they do "
                f"not change places; got {list(dims)}"
            )
        order = [0, *(d - n + 1 for d in dims[n:])]
        values = self.values.transpose(order).copy()
        coalesced = self.coalesced and tuple(dims[:n]) == tuple(range(n))
        return self.like(self.indices[list(dims[:n])], values, [self.shape[d] for d in dims], coalesced)

    def swapaxes(self, dim0: int, dim1: int) -> COO:
        dims = list(range(self.ndim))
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
        return self.transpose(dims)

    # -- arithmetic --------------------------------------------------------------------------

    def plus(self, other: COO) -> COO:
        """The sum of two: the values of both, added up where the places are the same ones."""
        self._require_alike(other)
        if self.indices.shape == other.indices.shape and bool((self.indices == other.indices).all()):
            return self.with_values(self.values + other.values)
        indices = np.concatenate([self.indices, other.indices], axis=1)
        joined = self.like(indices, np.concatenate([self.values, other.values]), self.shape)
        return joined.coalesce() if self.coalesced and other.coalesced else joined

    def _require_alike(self, other: COO) -> None:
        if self.shape != other.shape or self.sparse_dim != other.sparse_dim:
            raise RuntimeError(
                f"sparse tensors must have the same sizes and sparse dimensions, got {list(self.shape)} with "
                f"{self.sparse_dim} and {list(other.shape)} with {other.sparse_dim}"
            )

    def added_to(self, dense: Array, out: Array = None, sign: int = 1) -> Array:
        """dense + sign * self: a new array, or `out`, which then is `dense`."""
        if dense.shape != self.shape:
            raise RuntimeError(
                f"add(dense, sparse): expected tensors of the same sizes, got {list(dense.shape)} and {list(self.shape)}"
            )
        if out is None:
            out = dense.astype(np.result_type(dense.dtype, self.dtype))
        whole, places = self.coalesce(), (...,)
        if self.sparse_dim:
            places = tuple(whole.indices)
        values = whole.values if self.sparse_dim else whole.values.sum(0)
        if sign == 1:
            out[places] += values
        else:
            out[places] -= values
        return out

    def times(self, other: Any) -> COO:
        """The product with a number, an ordinary array that broadcasts to this shape, or another sparse one."""
        if isinstance(other, COO):
            self._require_alike(other)
            own = self.coalesce()
            if not own.sparse_dim:
                return own.with_values(own.values.sum(0, keepdims=True) * other.values.sum(0, keepdims=True))
            values, stored = other.at(own.indices)
            return self.like(own.indices[:, stored], own.values[stored] * values[stored], self.shape, True)
        if not getattr(other, "ndim", 0):
            return self.with_values(self.values * other)
        if other.shape != self.shape:
            other = np.broadcast_to(other, self.shape)
        return self.with_values(self.values * other[tuple(self.indices)])

    def __add__(self, other: Any) -> Any:
        return self.plus(other) if isinstance(other, COO) else self.added_to(other)

    __radd__ = __add__

    def __iadd__(self, other: Any) -> Any:
        """In place for another sparse array; with an ordinary one the sum is an ordinary one too."""
        if not isinstance(other, COO):
            return self.added_to(other)
        self[...] = self.plus(other)
        return self

    def __sub__(self, other: COO) -> COO:
        return self.plus(-other)

    def __neg__(self) -> COO:
        return self.with_values(-self.values)

    def __mul__(self, other: Any) -> COO:
        return self.times(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> COO:
        if getattr(other, "ndim", 0):
            raise RuntimeError("a sparse tensor can only be divided by a number or a 0-dimensional tensor")
        return self.with_values(self.values / other)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Become `value` altogether: another sparse array, or 0."""
        if not _is_everything(index):
            raise Unsupported("a sparse tensor cannot be written to by index; call to_dense() first")
        if isinstance(value, COO):
            if value.shape != self.shape:
                raise RuntimeError(
                    f"a sparse tensor of shape {list(value.shape)} does not fit {list(self.shape)}"
                )
            if value.indices is self.indices and value.dtype == self.dtype:
                self.values[...] = value.values  # who holds the values sees it
                return
            self.indices, self.values = value.indices.copy(), value.values.astype(self.dtype)
            self.coalesced = value.coalesced
        elif isinstance(value, (bool, int, float, complex)) and value == 0:
            self.indices, self.values = self.indices[:, :0], self.values[:0]
            self.coalesced = True
        else:
            raise Unsupported(
                "a sparse tensor can be overwritten with a sparse one, or with 0: copy_() between dense and sparse "
                "tensors is not implemented"
            )

    def dot(self, other: Array) -> Array:
        """Matrix product: with an ordinary vector or matrix an ordinary one, with a sparse matrix a sparse one."""
        if self.ndim != 2 or self.sparse_dim != 2:
            raise RuntimeError(
                f"a product with a sparse tensor takes a matrix of two sparse dimensions, got shape {list(self.shape)} "
                f"with {self.sparse_dim}"
            )
        if isinstance(other, COO):
            return self._dot_sparse(other)
        rows, columns = self.indices
        columns_of_other = other.reshape(len(other), -1)
        parts = self.values[:, None] * columns_of_other[columns]
        return added_rows(parts, rows, self.shape[0]).reshape(self.shape[0], *other.shape[1:])

    def _dot_sparse(self, other: COO) -> COO:
        right = other.coalesce()  # in order of its rows
        starts = np.searchsorted(right.indices[0], np.arange(other.shape[0] + 1))
        rows, inner = self.indices
        counts = (starts[1:] - starts[:-1])[inner]
        left = np.repeat(np.arange(self.nnz), counts)
        offsets = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = starts[inner[left]] + offsets
        indices = np.stack([rows[left], right.indices[1][places]])
        shape = (self.shape[0], other.shape[1])
        return self.like(indices, self.values[left] * right.values[places], shape).coalesce()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """The operators under NumPy's names, and `dense - sparse`; a sum may be written into the dense array."""
        target, sign = (out[0] if out else None), _SIGNS.get(ufunc)
        if method == "__call__" and not options:
            first, last = inputs[0], inputs[-1]
            if sign and not isinstance(first, COO) and (target is None or target is first):
                return self.added_to(np.asarray(first), target, sign)
            if ufunc in _OPERATORS and target is None:
                return (
                    _OPERATORS[ufunc](first, last)
                    if isinstance(first, COO)
                    else _OPERATORS[ufunc](last, first)
                )
            if ufunc is np.negative and target is None:
                return -first
        raise Unsupported(f"{ufunc.__name__} is not defined for sparse tensors; call to_dense() first")


def _is_everything(index: Any) -> bool:
    return index is Ellipsis or (index.__class__ is tuple and len(index) == 1 and index[0] is Ellipsis)


_SIGNS = {np.add: 1, np.subtract: -1}
# With a sparse array first; the others are symmetric.
_OPERATORS = {np.add: COO.__add__, np.subtract: COO.__sub__, np.multiply: COO.__mul__}


class CudaCOO(COO):
    """A sparse array on a GPU."""

    __slots__ = ()


def coo(indices: Array, values: Array, shape: Sequence[int], coalesced: bool = False) -> COO:
    """A sparse array of the class for where `values` lies."""
    kind = CudaCOO if backend_for(values).kind == "cuda" else COO
    return kind(indices, values, shape, coalesced)


def added_rows(rows: Array, owner: Array, count: int) -> Array:
    """(count, ...): row i of `rows` (n, ...) added to row owner[i], in order of i; 16-bit floats are rounded once."""
    F = backend_for(rows)
    if rows.dtype.itemsize == 2 and rows.dtype.kind not in "iu":
        return added_rows(rows.astype(np.float32), owner, count).astype(rows.dtype)
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    return F.embedding_backward(flat, owner, count, None).reshape(count, *rows.shape[1:])
