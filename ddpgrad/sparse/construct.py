"""New sparse tensors: of indices and values, and without elements."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ..backend import device as devices
from ..backend import dtype as dtypes
from ..backend.registry import backend_of
from ..backend.sparse.coo import COO, coo
from ..backend.sparse.kernels import empty as empty_coo
from ..core import upcalls
from ..core.overrides import asking_modes
from ..core.size import Layout, sparse_coo, sparse_csc, sparse_csr
from ..core.tensor import Tensor, wrap
from ..ops.creation.data import as_tensor
from ..ops.creation.factories import arange, shape_of
from ..ops.creation.interop import TYPED
from ..ops.elementwise.conversion import to
from ..ops.shape.stacking import stack
from .autograd import build


@upcalls.sparse_coo_tensor.register
@asking_modes
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """The sparse tensor with `values` (nnz, *dense) at `indices` (sparse dimensions, nnz), and 0 elsewhere.

    size: by default the largest index of each dimension plus one, and the dense dimensions. Without values, as in
    `sparse_coo_tensor((2, 3))`, it has no elements. Places that occur twice add up. Gradients flow to `values`, unless
    `requires_grad` asks for a leaf. Indices are always checked, since wrong ones would reach foreign memory;
    check_invariants is accepted for PyTorch's sake. is_coalesced: that every place occurs once, in order, which is checked.
    RuntimeError for what does not fit together. Source: torch.sparse_coo_tensor.
    """
    if values is None:
        return sparse_zeros(indices if size is None else size, dtype, device, requires_grad)
    given = as_tensor(values, dtype=dtype, device=device)
    places = to(as_tensor(indices, device=given.device), dtypes.int64).detach()
    if not given.ndim:
        given = given.reshape(1)
    array = _checked(places, given, size)
    if is_coalesced:
        keys = array.keys()
        if (keys[1:] <= keys[:-1]).any():
            raise RuntimeError(
                "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor: give every place once, "
                "in order"
            )
        array.coalesced = True
    if requires_grad:
        return wrap(array).requires_grad_()
    return build(given, array)


def _checked(indices: Tensor, values: Tensor, size: Sequence[int] | None) -> COO:
    """The raw array of indices and values that fit together and into `size`."""
    if indices.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    sparse_dim, nnz = indices.shape
    if nnz != len(values):
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {nnz}, nnz from values: {len(values)}"
        )
    low = indices._array.min(1).tolist() if nnz else [0] * sparse_dim
    high = indices._array.max(1).tolist() if nnz else [-1] * sparse_dim
    for dim, least in enumerate(low):
        if least < 0:
            raise RuntimeError(f"found negative index {least} for dim {dim}")
    dense = tuple(values.shape[1:])
    shape = (*(n + 1 for n in high), *dense) if size is None else shape_of("sparse_coo_tensor", (size,))
    if len(shape) != sparse_dim + len(dense):
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = "
            f"{sparse_dim}, dense_dim = {len(dense)}"
        )
    if shape[sparse_dim:] != dense:
        raise RuntimeError(
            f"values has incorrect size, expected {[nnz, *shape[sparse_dim:]]}, got {list(values.shape)}"
        )
    for dim, most in enumerate(high):
        if most >= shape[dim]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {shape[dim]} but found index {most}"
            )
    return coo(indices._array, values._array, shape)


def sparse_zeros(size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A sparse tensor of that shape without elements."""
    shape = shape_of("sparse_coo_tensor", (size,))
    where = devices.of(device if device is not None else devices.default())
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.of(dtype)
    backend = backend_of(where.type)
    return wrap(empty_coo(backend.on(where, backend.empty, (), kind), shape)).requires_grad_(requires_grad)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Layout | None = None) -> Tensor:
    """The sparse matrix whose diagonals are the rows of `diagonals`: column j of a row stands in column j.

    offsets: which diagonal each row is, 0 the main one, and those above it positive. layout: sparse_coo, the default,
    sparse_csr or sparse_csc. Source: torch.sparse.spdiags.
    """
    rows = diagonals.reshape(1, -1) if diagonals.ndim == 1 else diagonals
    given = offsets.reshape(-1)
    if rows.ndim != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if offsets.ndim > 1:
        raise RuntimeError("Offsets must be scalar or vector")
    if len(rows) != len(given):
        raise RuntimeError(
            f"Number of diagonals ({len(rows)}) does not match the number of offsets ({len(given)})"
        )
    if offsets.dtype is not dtypes.int64:
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {offsets.dtype.name}")
    if len(set(given.tolist())) < len(given):
        raise RuntimeError("Offset tensor contains duplicate values")
    if layout not in (None, sparse_coo, sparse_csr, sparse_csc):
        raise RuntimeError(
            f"Only the layouts sparse_coo, sparse_csr and sparse_csc are supported, got {layout}"
        )
    column = arange(rows.shape[1], device=rows.device).expand(rows.shape)
    row = column - given.reshape(-1, 1)
    inside = (row >= 0) & (row < shape[0]) & (column < shape[1])
    out = sparse_coo_tensor(stack([row[inside], column[inside]]), rows[inside], shape)
    return out if layout in (None, sparse_coo) else out.to_sparse(layout=layout)


class check_sparse_tensor_invariants:
    """`torch.sparse.check_sparse_tensor_invariants`: whether PyTorch checks indices, which is always done here."""

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self._chosen = enable

    @staticmethod
    def is_enabled() -> bool:
        """What was asked for last."""
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        """Ask for checks."""
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        """Ask for none; they are made all the same."""
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        self._before, check_sparse_tensor_invariants._enabled = self.is_enabled(), self._chosen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        check_sparse_tensor_invariants._enabled = self._before


def _typed(name: str) -> Any:
    def make(*args: Any) -> Tensor:
        if len(args) > 1 and isinstance(args[0], (Tensor, np.ndarray, list)):
            return sparse_coo_tensor(*args, dtype=TYPED[name].dtype)
        return sparse_zeros(args[0] if len(args) == 1 else args or (0,), TYPED[name].dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = (
        f"`sparse_coo_tensor` of {TYPED[name].dtype!r}, as old programs call it: (indices, values, size)."
    )
    return make


FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor = map(
    _typed, ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor")
)
IntTensor, LongTensor, ByteTensor, CharTensor, ShortTensor = map(
    _typed, ("IntTensor", "LongTensor", "ByteTensor", "CharTensor", "ShortTensor")
)
