"""Compressed: a raw array whose stored elements lie row by row (CSR) or column by column (CSC), or in blocks (BSR, BSC)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import Device
from ..elementary.indexing import numbered
from ..registry import backend_for, to_device
from .coo import COO, coo, starts_of
from .held import HeldElements, as_columns

Array = Any

BY_ROW, BY_COLUMN, IN_BLOCKS = (
    ("sparse_csr", "sparse_bsr"),
    ("sparse_csc", "sparse_bsc"),
    ("sparse_bsr", "sparse_bsc"),
)
TRANSPOSED = dict(zip(BY_ROW + BY_COLUMN, BY_COLUMN + BY_ROW, strict=True))
NAMES = dict.fromkeys(BY_ROW, ("crow_indices", "col_indices")) | dict.fromkeys(
    BY_COLUMN, ("ccol_indices", "row_indices")
)
"""The two arrays of indices, under the names of the methods that give them."""


class Compressed(HeldElements):
    """A matrix of `values`, the others 0; dimensions beyond two are dense.

    starts: (lines + 1,) where each line, a row or a column (of blocks), begins in `places` and `values`. places: (nnz,) the
    column or row of each. values: (nnz, *dense), or (nnz, rows and columns of a block, *dense). Of a batch of matrices,
    which have one number of stored elements, all of these and the shape begin with the batch's own.
    """

    __slots__ = ("__weakref__", "layout", "places", "shape", "starts", "values")
    starts: Array
    places: Array
    sparse_dim = 2

    def __init__(
        self, layout: str, starts: Array, places: Array, values: Array, shape: Sequence[int]
    ) -> None:
        self.layout, self.starts, self.places, self.values = layout, starts, places, values
        self.shape = tuple(shape)

    def __reduce__(self) -> Any:
        return compressed, (self.layout, self.starts, self.places, self.values, self.shape)

    def parts(self) -> dict[str, Array]:
        lines, places = NAMES[self.layout]
        return {lines: self.starts, places: self.places, "values": self.values}

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of a batch of matrices; () of one matrix."""
        return self.starts.shape[:-1]

    @property
    def nnz(self) -> int:
        return self.places.shape[-1]

    @property
    def block(self) -> tuple[int, int] | None:
        """The shape of a block; None where there are none."""
        return self.values.shape[1:3] if self.layout in IN_BLOCKS else None

    def in_order(self) -> bool:
        """Whether every place of a line occurs once, in order."""
        lines, places = self._lines().reshape(-1), self.places.reshape(-1)
        same = lines[1:] == lines[:-1]
        return bool((places[1:] > places[:-1])[same].all())

    def _lines(self) -> Array:
        """The line of each stored element, in the shape of `places`; those of a batch are numbered on."""
        counts = self.starts[..., 1:] - self.starts[..., :-1]
        return numbered(counts.reshape(-1))[0].reshape(self.places.shape)

    def member(self, number: int) -> Compressed:
        """One matrix, or smaller batch, of a batch."""
        parts = (self.starts[number], self.places[number], self.values[number])
        return self.__class__(self.layout, *parts, self.shape[1:])

    # -- other forms -------------------------------------------------------------------------

    def with_values(self, values: Array) -> Compressed:
        return self.__class__(self.layout, self.starts, self.places, values, self.shape)

    def copy(self) -> Compressed:
        return self.__class__(
            self.layout, self.starts.copy(), self.places.copy(), self.values.copy(), self.shape
        )

    def to(self, device: Device) -> Compressed:
        """On another device."""
        starts, places, values = (to_device(part, device) for part in (self.starts, self.places, self.values))
        return compressed(self.layout, starts, places, values, self.shape)

    @property
    def indices(self) -> Array:
        """(2, *shape of the values without dense dimensions) int64: row and column of each stored element.

        Of a batch the number, or numbers, of its matrix come first.
        """
        lines, places = self._lines(), self.places.astype(np.int64)
        if self.batch:
            lines = lines % max(self.starts.shape[-1] - 1, 1)
        rows, columns = (lines, places) if self.layout in BY_ROW else (places, lines)
        if self.block is not None:
            (high, wide), none = self.block, np.zeros_like(rows, shape=self.block)
            rows = rows[:, None, None] * high + np.arange(high, like=rows)[:, None] + none
            columns = columns[:, None, None] * wide + np.arange(wide, like=rows) + none
        numbers = [
            np.arange(n, like=rows).reshape(-1, *[1] * (len(self.batch) - d)) + np.zeros_like(rows)
            for d, n in enumerate(self.batch)
        ]
        return np.stack([*numbers, rows, columns])

    def coo(self) -> COO:
        """In coordinates, in order of the rows."""
        indices = self.indices
        flat = indices.reshape(len(indices), -1)
        values = self.values.reshape(flat.shape[1], *self.shape[len(indices) :])
        keys = flat[0]
        for own, n in zip(flat[1:], self.shape[1:], strict=False):
            keys = keys * n + own
        if not bool((keys[1:] > keys[:-1]).all()):
            order = np.argsort(keys, kind="stable")
            keys, flat, values = keys[order], flat[:, order], values[order]
        once = bool((keys[1:] > keys[:-1]).all())  # else a line has a place twice
        return coo(flat, values, self.shape, once)

    def coalesce(self) -> Compressed:
        """Itself: every place occurs once."""
        return self

    def dense(self) -> Array:
        return self.coo().dense()

    def at(self, indices: Array) -> tuple[Array, Array]:
        """(the elements at `indices` (2, ...), which of them are stored)."""
        values, stored = self.coo().at(indices.reshape(len(indices), -1))
        shape = indices.shape[1:]
        return values.reshape(*shape, *self.shape[len(indices) :]), stored.reshape(shape)

    def transpose(self, dims: Sequence[int]) -> Compressed:
        """The two sparse dimensions in the other order, in the same memory: rows become columns."""
        if tuple(dims) == tuple(range(self.ndim)):
            return self.with_values(self.values)
        swapped, row = list(range(self.ndim)), len(self.batch)
        swapped[row], swapped[row + 1] = row + 1, row
        if list(dims) != swapped:
            raise RuntimeError(
                f"transpose of a tensor of layout torch.{self.layout}: only rows and columns change places, got {list(dims)}"
            )
        values = self.values if self.block is None else self.values.swapaxes(1, 2)
        shape = [self.shape[d] for d in swapped]
        return self.__class__(TRANSPOSED[self.layout], self.starts, self.places, values, shape)

    @property
    def T(self) -> Compressed:
        return self.transpose((1, 0))

    def alike(self, other: COO) -> Compressed:
        """Elements in coordinates in this layout."""
        return compress(other, self.layout, self.block)

    # -- arithmetic --------------------------------------------------------------------------

    def same_places(self, other: Any) -> bool:
        """Whether another array is of this layout and has stored the same elements."""
        if not isinstance(other, Compressed) or other.layout != self.layout or other.shape != self.shape:
            return False
        if other.starts is self.starts and other.places is self.places:
            return True
        alike = other.values.shape == self.values.shape
        return (
            alike and bool((other.starts == self.starts).all()) and bool((other.places == self.places).all())
        )

    def plus(self, other: Any) -> Compressed:
        if self.same_places(other):
            return self.with_values(self.values + other.values)
        return self.alike(self.coo().plus(other.coo()).coalesce())

    def added_to(self, dense: Array, out: Array = None, sign: int = 1) -> Array:
        return self.coo().added_to(dense, out, sign)

    def times(self, other: Any) -> Compressed:
        if isinstance(other, HeldElements):
            if self.same_places(other):
                return self.with_values(self.values * other.values)
            return self.alike(self.coo().times(other))
        if not getattr(other, "ndim", 0):
            return self.with_values(self.values * other)
        other = np.broadcast_to(other, self.shape)
        return self.with_values(self.values * other[tuple(self.indices)])

    def become(self, other: Any) -> None:
        if self.same_places(other):
            self.values[...] = other.values  # who holds the values sees it
            return
        if other.shape != self.shape:
            raise RuntimeError(
                f"a sparse tensor of shape {list(other.shape)} does not fit {list(self.shape)}"
            )
        if not isinstance(other, Compressed) or other.layout != self.layout:
            other = self.alike(other.coo().coalesce())
        self.starts, self.places = other.starts.copy(), other.places.copy()
        self.values = other.values.astype(self.dtype)

    def clear(self) -> None:
        self.starts = np.zeros_like(self.starts)
        none = (*[slice(None)] * len(self.batch), slice(0))
        self.places, self.values = self.places[none], self.values[none]

    def dot(self, other: Array) -> Any:
        if not isinstance(other, HeldElements) and self.block is None and self.ndim == 2:
            F, wide = backend_for(self.values), as_columns(other)
            parts = (self.starts.astype(np.int64, copy=False), self.places.astype(np.int64, copy=False))
            product = F.compressed_product(*parts, self.values, wide, self.shape[0], self.layout in BY_ROW)
            return product.reshape(self.shape[0], *other.shape[1:])
        product = self.coo().dot(other)
        if not isinstance(product, COO):
            return product
        return compress(product, self.layout if self.block is None else "sparse_csr")


class CudaCompressed(Compressed):
    """A compressed array on a GPU."""

    __slots__ = ()


def compressed(layout: str, starts: Array, places: Array, values: Array, shape: Sequence[int]) -> Compressed:
    """A compressed array of the class for where `values` lies."""
    kind = CudaCompressed if backend_for(values).kind == "cuda" else Compressed
    return kind(layout, starts, places, values, shape)


def compress(input: COO, layout: str, block: Sequence[int] | None = None) -> Compressed:
    """A matrix in coordinates, every place once, in another layout. block: the shape of a block of BSR and BSC."""
    if input.sparse_dim != 2:
        raise RuntimeError(f"torch.{layout}: what changes the places of a batch of matrices is not supported")
    if layout in IN_BLOCKS:
        return _in_blocks(input, layout, *(block or (1, 1)))
    rows, columns = input.indices
    values, shape = input.values, input.shape
    lines, places, count = (rows, columns, shape[0]) if layout in BY_ROW else (columns, rows, shape[1])
    if layout in BY_COLUMN:
        order = np.argsort(lines, kind="stable")
        lines, places, values = lines[order], places[order], values[order]
    return compressed(layout, starts_of(lines, count), places, values, shape)


def _in_blocks(input: COO, layout: str, high: int, wide: int) -> Compressed:
    """The blocks that hold at least one element."""
    rows, columns = input.indices
    lines, places, count = rows // high, columns // wide, input.shape[0] // high
    if layout in BY_COLUMN:
        lines, places, count = places, lines, input.shape[1] // wide
    width = int(input.shape[1] // wide if layout in BY_ROW else input.shape[0] // high)
    keys, owner = np.unique(lines * max(width, 1) + places, return_inverse=True)
    values = np.zeros_like(input.values, shape=(len(keys), high, wide, *input.shape[2:]))
    values[owner.reshape(-1), rows % high, columns % wide] = input.values
    lines, places = keys // max(width, 1), keys % max(width, 1)
    return compressed(layout, starts_of(lines, count), places, values, input.shape)
