"""Tensors whose elements are stored row by row or column by column: new ones, and conversions to these layouts."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np

from ..backend import device as devices
from ..backend import dtype as dtypes
from ..backend.registry import SparseArray, backend_of, to_device
from ..backend.sparse import compressed_kernels  # noqa: F401 - which adds their backend
from ..backend.sparse.compressed import BY_ROW, IN_BLOCKS, NAMES, Compressed, compress, compressed
from ..backend.sparse.coo import COO
from ..core import upcalls
from ..core.overrides import asking_modes
from ..core.size import COMPRESSED, Layout, sparse_coo
from ..core.tensor import Tensor, wrap
from ..ops.creation.data import as_tensor
from ..ops.creation.factories import shape_of
from .autograd import build, converted, sparse_of
from .construct import sparse_zeros


def called(tensor: Tensor) -> str:
    """The layout of a tensor as messages name it."""
    array = tensor._array
    return array.called if isinstance(array, SparseArray) else "Strided"


# -- new tensors ---------------------------------------------------------------------------------


def _made(
    layout: str,
    starts: Any,
    places: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    given = as_tensor(values, dtype=dtype, device=device)
    lines, others = (_indices(part, given.device) for part in (starts, places))
    array = _checked(layout, lines, others, given, size, check_invariants)
    if requires_grad:
        return wrap(array).requires_grad_()
    return build(given, array)


def _indices(part: Any, device: Any) -> Any:
    tensor = as_tensor(part, device=device)
    if tensor.dtype not in (dtypes.int32, dtypes.int64):
        tensor = tensor.to(dtypes.int64)
    return tensor.detach()._array


def _checked(
    layout: str, starts: Any, places: Any, values: Tensor, size: Sequence[int] | None, order: bool | None
) -> Compressed:
    """The raw array of parts that fit together and into `size`; order: check that the places of a line are in order too."""
    (first, second), blocks = NAMES[layout], 2 if layout in IN_BLOCKS else 0
    if starts.ndim != places.ndim:
        raise RuntimeError(
            f"{first} and {second} dimensionalities must be equal but got {starts.ndim} and {places.ndim}, respectively"
        )
    batch = tuple(starts.shape[:-1])
    if not starts.ndim or (batch and blocks):
        raise NotImplementedError(
            f"torch.{layout}: expected {first} of one dimension{'' if blocks else ', or more for a batch'}, got {starts.ndim}"
        )
    if values.ndim < starts.ndim + blocks:
        raise RuntimeError(
            f"values must have dimensionality > {starts.ndim - 1 + blocks} but got {values.ndim}"
        )
    high, wide = values.shape[1:3] if blocks else (1, 1)
    dense = tuple(values.shape[starts.ndim + blocks :])
    nnz = values.shape[starts.ndim - 1]
    if size is None:
        lines, width = starts.shape[-1] - 1, int(places.max()) + 1 if places.size else 0
        rows, columns = (lines, width) if layout in BY_ROW else (width, lines)
        shape: tuple[int, ...] = (*batch, rows * high, columns * wide, *dense)
    else:
        shape = tuple(shape_of("sparse_compressed_tensor", (size,)))
    expected = (*batch, *shape[len(batch) : len(batch) + 2], *dense)
    if (
        len(expected) < len(batch) + 2 + len(dense)
        or shape != expected
        or places.shape[:-1] != batch
        or values.shape[: len(batch)] != batch
    ):
        raise RuntimeError(
            f"values of shape {list(values.shape)} do not fit size {list(shape)}: {list(batch)}, two sparse dimensions, and "
            f"then {list(dense)}"
        )
    rows, columns = shape[len(batch) : len(batch) + 2]
    if rows % high or columns % wide:
        raise RuntimeError(f"size {[rows, columns]} must be divisible by the blocksize {[high, wide]}")
    rows, columns = rows // high, columns // wide
    lines, width, name = (rows, columns, "ncols") if layout in BY_ROW else (columns, rows, "nrows")
    counts, stored, ends = starts[..., 1:] - starts[..., :-1], places.shape[-1], starts.shape[-1]
    conditions = [
        (stored == nnz, f"{second}.shape[-1] must be equal to nnz ({nnz}) but got {stored}"),
        (ends == lines + 1, f"{first}.shape[-1] must be equal to {lines + 1} but got {ends}"),
        (ends and bool((starts[..., 0] == 0).all()), f"`{first}[..., 0] == 0` is not satisfied."),
        (ends and bool((starts[..., -1] == nnz).all()), f"`{first}[..., -1] == nnz` is not satisfied."),
        (bool((counts >= 0).all()), f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {name}` is not satisfied."),
        (
            not places.size or (int(places.min()) >= 0 and int(places.max()) < width),
            f"`0 <= {second} < {name}` is not satisfied.",
        ),
    ]  # fmt: skip
    for holds, text in conditions:
        if not holds:
            raise RuntimeError(text)
    array = compressed(layout, starts, places, values._array, shape)
    if order and not array.in_order():
        raise RuntimeError(
            f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {'nrows' if layout in BY_ROW else 'ncols'} "
            "are sorted and distinct along the last dimension values` is not satisfied."
        )
    return array


def _function(layout: str) -> Any:
    name = f"{layout}_tensor"
    lines, places = NAMES[layout]

    def make(*args: Any, **named: Any) -> Tensor:
        for theirs, own in ((lines, "starts"), (places, "places")):
            if theirs in named:
                named[own] = named.pop(theirs)
        return _made(layout, *args, **named)

    make.__name__ = make.__qualname__ = name
    _, first, second, *others = signature(_made).parameters.values()
    shown = [first.replace(name=lines), second.replace(name=places), *others]
    make.__dict__["__signature__"] = signature(_made).replace(parameters=shown)
    blocks = ", rows and columns of a block" if layout in IN_BLOCKS else ""
    make.__doc__ = (
        f"The matrix of layout `torch.{layout}` of {lines} (lines + 1), {places} (nnz) and values (nnz{blocks}, *dense).\n\n"
        "size: by default the smallest that holds them. dtype, device, requires_grad as elsewhere; gradients flow to\n"
        "`values`. What would reach foreign memory is always an error; check_invariants=True asks for places in order too.\n"
        f"Source: torch.{name}."
    )
    return asking_modes(make)


sparse_csr_tensor, sparse_csc_tensor = _function("sparse_csr"), _function("sparse_csc")
sparse_bsr_tensor, sparse_bsc_tensor = _function("sparse_bsr"), _function("sparse_bsc")


@asking_modes
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    layout: Layout | None = None,
    **options: Any,
) -> Tensor:
    """`sparse_csr_tensor` and its like, by `layout`. Source: torch.sparse_compressed_tensor."""
    if layout is None or layout not in COMPRESSED:
        raise RuntimeError(
            f"sparse_compressed_tensor expected sparse compressed tensor layout but got {layout or 'none'}"
        )
    return _made(layout.name, compressed_indices, plain_indices, values, size, **options)


@upcalls.sparse_zeros.register
def without_elements(shape: Sequence[int], layout: Layout, dtype: Any, device: Any) -> Tensor:
    """Zeros, none of which is stored: a matrix, or in coordinates any shape."""
    if layout is sparse_coo:
        return sparse_zeros(shape, dtype, device)
    if layout.name in IN_BLOCKS:
        raise RuntimeError(
            f"empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got {layout}"
        )
    if len(shape) != 2:
        raise NotImplementedError(f"{layout}: expected a shape of two dimensions, got {list(shape)}")
    where = devices.of(device if device is not None else devices.default())
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.of(dtype)
    starts = np.zeros(shape[0 if layout.name in BY_ROW else 1] + 1, np.int64)
    backend = backend_of(where.type)
    values = backend.on(where, backend.empty, (0,), kind)
    lines, places = (to_device(part, where) for part in (starts, np.zeros(0, np.int64)))
    return wrap(compressed(layout.name, lines, places, values, shape))


# -- conversions ---------------------------------------------------------------------------------


def to_layout(self: Tensor, layout: str, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """A matrix in the layout `torch.<layout>`; itself where it has that. blocksize: of BSR and BSC."""
    array: Any = self._array
    block = _blocksize(self, layout, blocksize)
    if isinstance(array, SparseArray) and dense_dim is not None:
        raise RuntimeError(
            f"to_{layout}: conversion from {called(self)} to torch.{layout} with dense_dim argument given is not supported"
        )
    if isinstance(array, Compressed) and array.layout == layout and array.block == block:
        return self
    if not isinstance(array, SparseArray):
        if block is None and self.ndim - (dense_dim or 0) > 2:
            return sparse_of(self, _batch(self, layout, dense_dim))
        return sparse_of(self, compress(_stored(self, layout, dense_dim), layout, block))
    whole = array.coo().coalesce()
    if whole.sparse_dim != 2:
        raise NotImplementedError(
            f"to_{layout}: expected a matrix of two sparse dimensions, got {whole.sparse_dim}: call to_dense() first"
        )
    return converted(self, compress(whole, layout, block))


def _batch(self: Tensor, layout: str, dense_dim: int | None) -> Compressed:
    """The elements of a batch of dense matrices that are not 0: of each matrix as many."""
    lead = tuple(self.shape[: self.ndim - 2 - (dense_dim or 0)])
    matrices = self.detach().reshape(-1, *self.shape[len(lead) :])
    each = [compress(_stored(matrix, layout, dense_dim), layout) for matrix in matrices]
    if len({one.nnz for one in each}) != 1:
        raise RuntimeError(
            f"to_{layout}: Expect the same number of specified elements per batch, and at least one matrix, got "
            f"{[one.nnz for one in each]}"
        )
    starts, places, values = (
        np.stack(part).reshape(*lead, *part[0].shape)
        for part in zip(*[(one.starts, one.places, one.values) for one in each], strict=True)
    )
    return compressed(layout, starts, places, values, tuple(self.shape))


def _stored(self: Tensor, layout: str, dense_dim: int | None) -> COO:
    """The elements of a dense tensor that are not 0, the first two dimensions sparse."""
    if self.ndim - (dense_dim or 0) != 2:
        raise NotImplementedError(
            f"to_{layout}: expected a matrix, and perhaps dense_dim dimensions after it, got shape {list(self.shape)} with "
            f"dense_dim={dense_dim}: batches of matrices are not supported"
        )
    return self.detach().to_sparse(2)._array


def _blocksize(self: Tensor, layout: str, given: Any) -> tuple[int, int] | None:
    """The shape of a block, where the layout has some."""
    if layout not in IN_BLOCKS:
        if given is not None:
            raise RuntimeError(f"to_{layout}: blocksize is of layouts with blocks, and must be None here")
        return None
    if given is None:
        raise RuntimeError(
            f"to_{layout}: conversion from {called(self)} to torch.{layout} without blocksize argument given is not "
            "supported"
        )
    high, wide = (given, given) if isinstance(given, int) else given
    if high < 1 or wide < 1 or self.shape[0] % high or self.shape[1] % wide:
        raise RuntimeError(
            f"to_{layout}: tensor sparse size ({self.shape[0]},{self.shape[1]}) must be divisible by given blocksize "
            f"({high},{wide})"
        )
    return int(high), int(wide)
