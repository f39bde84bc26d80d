"""What a Tensor has for its layout: conversions, and the parts of a sparse tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend.sparse.coo import COO, coo
from ..core import upcalls
from ..core.size import COMPRESSED, Layout, sparse_coo
from ..core.tensor import Tensor, wrap
from ..ops.elementwise.conversion import to
from ..ops.reduction.reduce import wrap_dim
from .autograd import build, coalesced, converted, dense_of, elements, is_coo, is_sparse, sparse_of, values_of
from .compressed import NAMES, called, to_layout


def _require(name: str, tensor: Tensor, words: str = "sparse coordinate tensor") -> COO:
    """The raw array of a sparse tensor in coordinates; RuntimeError for another."""
    if not is_coo(tensor):
        raise RuntimeError(f"{name} expected {words} layout but got {called(tensor)}")
    return tensor._array


def _require_sparse(name: str, tensor: Tensor) -> Any:
    """The raw array of a tensor of any sparse layout; RuntimeError for another."""
    if not is_sparse(tensor):
        raise RuntimeError(f"{name} expected sparse tensor layout but got Strided")
    return tensor._array


def _require_coalesced(name: str, tensor: Tensor) -> COO:
    array = _require(name, tensor, "sparse coordinate tensor")
    if not array.coalesced:
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
    return array


def coalesce(self: Tensor) -> Tensor:
    """The same sparse tensor with every place once, in order, the values of one place added up; itself where it is so."""
    _require("coalesce", self)
    return coalesced(self)


def is_coalesced(self: Tensor) -> bool:
    """Whether every place is known to occur once, in order."""
    return _require("is_coalesced", self).coalesced


def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    """Say of a sparse tensor that every place occurs once, in order, or that this is not known; nothing is looked at."""
    _require("_coalesced_", self).coalesced = bool(coalesced)
    return self


def indices(self: Tensor) -> Tensor:
    """(sparse_dim, nnz) int64: the places of the stored elements of a coalesced tensor."""
    return wrap(_require_coalesced("indices", self).indices)


def values(self: Tensor) -> Tensor:
    """(nnz, *dense dimensions): the stored elements, in the tensor's memory. Of coordinates, it must be coalesced."""
    if is_coo(self):
        _require_coalesced("values", self)
    _require_sparse("values", self)
    return values_of(self)


def _part(name: str) -> Any:
    words = "row" if name in NAMES["sparse_csr"] else "column"

    def part(self: Tensor) -> Tensor:
        if not is_sparse(self) or name not in self._array.parts():
            raise RuntimeError(
                f"{name} expected sparse {words} compressed tensor layout but got {called(self)}"
            )
        return wrap(self._array.parts()[name])

    part.__name__ = part.__qualname__ = name
    what = (
        "where each one begins"
        if name.startswith("c") and name != "col_indices"
        else "the place of each element"
    )
    part.__doc__ = f"Of a tensor stored by {words}s: {what}, int64 or int32."
    return part


crow_indices, col_indices = _part("crow_indices"), _part("col_indices")
ccol_indices, row_indices = _part("ccol_indices"), _part("row_indices")


def _indices(self: Tensor) -> Tensor:
    """`indices` of a tensor that may be uncoalesced."""
    return wrap(_require("_indices", self).indices)


def _values(self: Tensor) -> Tensor:
    """`values` of a tensor that may be uncoalesced, without history."""
    return wrap(_require("_values", self).values)


def _nnz(self: Tensor) -> int:
    """The number of stored elements, or slices where there are dense dimensions."""
    return _require_sparse("_nnz", self).nnz


def sparse_dim(self: Tensor) -> int:
    """The number of sparse dimensions, which come first; 0 of a dense tensor."""
    return self._array.sparse_dim if is_sparse(self) else 0


def dense_dim(self: Tensor) -> int:
    """The number of dense dimensions."""
    return self.ndim - sparse_dim(self) - len(getattr(self._array, "batch", ()))


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """With all elements in memory; a dense tensor itself. masked_grad: False for a gradient of all elements."""
    out = dense_of(self, masked_grad is not False)
    return out if dtype is None else to(out, dtype)


def to_sparse(
    self: Tensor,
    sparse_dim: Any = None,
    *,
    layout: Layout | None = None,
    blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:
    """The elements that are not 0, in coordinates or another layout. sparse_dim: how many dimensions, from the first.

    blocksize: of the layouts `torch.sparse_bsr` and `torch.sparse_bsc`. A matrix has the other layouts.
    """
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    if layout in COMPRESSED:
        return to_layout(self, layout.name, blocksize, dense_dim)
    if layout not in (None, sparse_coo) or blocksize is not None:
        raise RuntimeError(
            f"to_sparse: expected a sparse layout, and no blocksize, got {layout} and {blocksize}"
        )
    if dense_dim is not None:
        sparse_dim = self.ndim - dense_dim
    count = self.ndim if sparse_dim is None else sparse_dim
    if not 0 < count <= self.ndim and (count or self.ndim):
        raise RuntimeError(
            f"to_sparse: sparse_dim must be from 1 to {self.ndim}, the number of dimensions; got {count}"
        )
    if is_sparse(self) and not is_coo(self):
        if sparse_dim not in (None, 2):
            raise RuntimeError(
                f"to_sparse: conversion from {called(self)} to Sparse with sparse_dim argument !=2 is not supported"
            )
        return converted(self, self._array.coo())
    if is_coo(self):
        if count == self._array.sparse_dim or sparse_dim is None:
            return self
        raise NotImplementedError(
            "to_sparse: a sparse tensor keeps its sparse dimensions; call to_dense() first"
        )
    array = self._array
    filled = array != 0
    if count < self.ndim:
        filled = filled.any(tuple(range(count, self.ndim)))
    indices = np.stack(filled.nonzero()) if count else np.zeros_like(array, np.int64, shape=(0, int(filled)))
    pattern = coo(indices, array[tuple(indices)] if count else array[None][: int(filled)], array.shape, True)
    return sparse_of(self, pattern)


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places that the sparse tensor `mask`, of the same shape, has stored, in its layout."""
    pattern = _require_sparse("sparse_mask: mask", mask).coalesce()
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
            f"{list(mask.shape)}"
        )
    return build(elements(self, pattern), pattern)


def to_sparse_coo(self: Tensor) -> Tensor:
    """`to_sparse()`."""
    return to_sparse(self)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The elements that are not 0, row by row."""
    return to_layout(self, "sparse_csr", None, dense_dim)


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The elements that are not 0, column by column."""
    return to_layout(self, "sparse_csc", None, dense_dim)


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The blocks (rows, columns) that are not 0 everywhere, row by row."""
    return to_layout(self, "sparse_bsr", blocksize, dense_dim)


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The blocks (rows, columns) that are not 0 everywhere, column by column."""
    return to_layout(self, "sparse_bsc", blocksize, dense_dim)


def wrapped(name: str, input: Tensor, dim: int) -> int:
    """`dim` counted from the first; IndexError where there is none."""
    return wrap_dim(name, dim, input.ndim)


@upcalls.attach_sparse.register
def attach() -> None:
    """Give the class Tensor its methods."""
    for function in (
        coalesce, is_coalesced, _coalesced_, indices, values, _indices, _values, _nnz, sparse_dim, dense_dim, to_dense, to_sparse,
        to_sparse_coo, to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc, sparse_mask, crow_indices, col_indices,
        ccol_indices, row_indices,
    ):  # fmt: skip
        setattr(Tensor, function.__name__, function)
