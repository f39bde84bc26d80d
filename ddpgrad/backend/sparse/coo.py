"""COO: a raw array that holds some of its elements, by their coordinates, in two ordinary arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import Device
from ..elementary.indexing import numbered
from ..registry import backend_for, to_device
from .held import HeldElements, as_columns

Array = Any


class COO(HeldElements):
    """Elements `values` (nnz, *dense dimensions) at `indices` (sparse dimensions, nnz); all others are 0.

    Where places occur twice their values add up. coalesced: they do not, and are in order. NumPy's functions
    (`np.unique` and its like) reach CuPy's arrays by themselves. The classes tell where the two arrays lie.
    """

    __slots__ = ("__weakref__", "coalesced", "indices", "shape", "values")
    indices: Array
    values: Array
    coalesced: bool
    layout = "sparse_coo"

    def __init__(self, indices: Array, values: Array, shape: Sequence[int], coalesced: bool = False) -> None:
        self.indices, self.values, self.shape = indices, values, tuple(shape)
        self.coalesced = coalesced or len(values) < 1

    @property
    def sparse_dim(self) -> int:
        return len(self.indices)

    def __reduce__(self) -> Any:
        return coo, (self.indices, self.values, self.shape, self.coalesced)

    def parts(self) -> dict[str, Array]:
        return {"indices": self.indices, "values": self.values}

    # -- other forms -------------------------------------------------------------------------

    def like(self, indices: Array, values: Array, shape: Sequence[int], coalesced: bool = False) -> COO:
        """Another array on the same kind of device."""
        return self.__class__(indices, values, shape, coalesced)

    def with_values(self, values: Array) -> COO:
        """The same places with other values."""
        return self.like(self.indices, values, self.shape, self.coalesced)

    def copy(self) -> COO:
        return self.like(self.indices.copy(), self.values.copy(), self.shape, self.coalesced)

    def to(self, device: Device) -> COO:
        """On another device."""
        return coo(
            to_device(self.indices, device), to_device(self.values, device), self.shape, self.coalesced
        )

    def coo(self) -> COO:
        """In coordinates: itself."""
        return self

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

    @property
    def T(self) -> COO:
        return self.transpose(tuple(reversed(range(self.ndim))))

    # -- arithmetic --------------------------------------------------------------------------

    def plus(self, other: COO) -> COO:
        """The sum of two: the values of both, added up where the places are the same ones."""
        other = other.coo()
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
        if isinstance(other, HeldElements):
            other = other.coo()
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

    def become(self, other: Any) -> None:
        other = other.coo()
        if other.shape != self.shape:
            raise RuntimeError(
                f"a sparse tensor of shape {list(other.shape)} does not fit {list(self.shape)}"
            )
        if other.indices is self.indices and other.dtype == self.dtype:
            self.values[...] = other.values  # who holds the values sees it
            return
        self.indices, self.values = other.indices.copy(), other.values.astype(self.dtype)
        self.coalesced = other.coalesced

    def clear(self) -> None:
        self.indices, self.values = self.indices[:, :0], self.values[:0]
        self.coalesced = True

    def dot(self, other: Array) -> Array:
        if self.ndim == self.sparse_dim == 3 and not isinstance(other, HeldElements):
            return self._dot_batch(other)
        if self.ndim != 2 or self.sparse_dim != 2:
            raise RuntimeError(
                f"a product with a sparse tensor takes a matrix of two sparse dimensions, got shape {list(self.shape)} "
                f"with {self.sparse_dim}"
            )
        if isinstance(other, HeldElements):
            return self._dot_sparse(other.coo())
        rows, columns = self.indices
        F, wide = backend_for(self.values), as_columns(other)
        if self.coalesced or _sorted(rows):
            lines = starts_of(rows, self.shape[0])
            product = F.compressed_product(lines, columns, self.values, wide, self.shape[0], True)
        elif _sorted(columns):  # transposed
            lines = starts_of(columns, self.shape[1])
            product = F.compressed_product(lines, rows, self.values, wide, self.shape[0], False)
        else:
            product = added_rows(self.values[:, None] * wide[columns], rows, self.shape[0])
        return product.reshape(self.shape[0], *other.shape[1:])

    def _dot_batch(self, other: Array) -> Array:
        """Matrix by matrix: one product with a matrix that has those of the batch along its diagonal."""
        count, rows, columns = self.shape
        if other.shape[:-1] != (count, columns):
            raise RuntimeError(
                f"a product with a sparse batch of matrices takes another of matrices, got shapes {list(self.shape)} and "
                f"{list(other.shape)}"
            )
        batch, row, column = self.indices
        indices = np.stack([batch * rows + row, batch * columns + column])
        blocks = self.like(indices, self.values, (count * rows, count * columns), self.coalesced)
        return blocks.dot(other.reshape(count * columns, -1)).reshape(count, rows, other.shape[-1])

    def _dot_sparse(self, other: COO) -> COO:
        right = other.coalesce()  # in order of its rows
        starts = starts_of(right.indices[0], other.shape[0])
        rows, inner = self.indices
        left, offsets = numbered((starts[1:] - starts[:-1])[inner])
        places = starts[inner[left]] + offsets
        indices = np.stack([rows[left], right.indices[1][places]])
        shape = (self.shape[0], other.shape[1])
        return self.like(indices, self.values[left] * right.values[places], shape).coalesce()


class CudaCOO(COO):
    """A sparse array on a GPU."""

    __slots__ = ()


def coo(indices: Array, values: Array, shape: Sequence[int], coalesced: bool = False) -> COO:
    """A sparse array of the class for where `values` lies."""
    kind = CudaCOO if backend_for(values).kind == "cuda" else COO
    return kind(indices, values, shape, coalesced)


def starts_of(lines: Array, count: int) -> Array:
    """(count + 1,) int64: where each of `count` lines begins in the sorted `lines` (n,)."""
    return np.searchsorted(lines, np.arange(count + 1, like=lines)).astype(np.int64, copy=False)


def _sorted(lines: Array) -> bool:
    return bool((lines[1:] >= lines[:-1]).all())


def added_rows(rows: Array, owner: Array, count: int) -> Array:
    """(count, ...): row i of `rows` (n, ...) added to row owner[i], in order of i; 16-bit floats are rounded once."""
    F = backend_for(rows)
    if rows.dtype.itemsize == 2 and rows.dtype.kind not in "iu":
        return added_rows(rows.astype(np.float32), owner, count).astype(rows.dtype)
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    return F.embedding_backward(flat, owner, count, None).reshape(count, *rows.shape[1:])
