"""What ops compute on sparse arrays. Names are those of ops; arrays beside sparse ones may be ordinary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..device import Device
from ..elementary.indexing import numbered
from ..registry import Backend, Unsupported, add_backend, backend_for
from .coo import COO, CudaCOO, coo, starts_of
from .held import HeldElements

Array = Any
Kernel = Callable[..., Any]

# Functions with f(0) = 0: what they make of the stored values is all there is.
OF_VALUES = (
    "abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor", "frac", "isinf", "isnan",
    "isneginf", "isposinf", "log1p", "nan_to_num", "rad2deg", "relu", "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt", "square",
    "tan", "tanh", "trunc",
)  # fmt: skip
# Linear ones among such functions, for which places may stay double.
LINEAR = ("neg", "conj", "real", "imag")
_DENSE_BESIDE_SPARSE = "add(sparse, dense) is not supported. Use add(dense, sparse) instead."


def _of_values(name: str, whole: bool) -> Kernel:
    def kernel(input: COO, *options: Any) -> COO:
        input = input.coalesce() if whole else input
        values = getattr(backend_for(input.values), name)(input.values, *options)
        return input.with_values(values)

    return kernel


def add(input: Any, other: Any) -> Any:
    if not isinstance(input, HeldElements) or not isinstance(other, HeldElements):
        raise RuntimeError(_DENSE_BESIDE_SPARSE)
    return input.plus(other)


def sub(input: Any, other: Any) -> Any:
    return add(input, other if not isinstance(other, HeldElements) else -other)


def mul(input: Any, other: Any) -> Any:
    return input.times(other) if isinstance(input, HeldElements) else other.times(input)


def div(input: HeldElements, other: Any) -> HeldElements:
    return input / other


def pow(input: Any, other: Any) -> Any:
    if isinstance(other, HeldElements) or getattr(other, "ndim", 0) or not other > 0:
        raise RuntimeError("the exponent of a sparse tensor must be a number greater than 0")
    whole = input.coalesce()
    return whole.with_values(backend_for(whole.values).pow(whole.values, other))


def cast(input: HeldElements, dtype: Any) -> HeldElements:
    return input.with_values(backend_for(input.values).cast(input.values, dtype))


def clone(input: HeldElements, memory_format: Any = None) -> HeldElements:
    return input.copy()


def asarray(data: Any, dtype: Any = None) -> Any:
    return data if isinstance(data, HeldElements) else backend_for(data).asarray(data, dtype)


def move(input: Any, device: Device, source: Device, non_blocking: bool = False) -> Any:
    return input.to(device)


def new_zeros(input: COO, shape: Sequence[int]) -> COO:
    dense = len(shape) - min(input.sparse_dim, len(shape)) if tuple(shape) == input.shape else 0
    return empty(input.values, shape, dense)


def empty(like: Array, shape: Sequence[int], dense: int = 0) -> COO:
    """A sparse array without elements; like: an ordinary array that says dtype and device."""
    sparse = len(shape) - dense
    indices = np.zeros_like(like, dtype=np.int64, shape=(sparse, 0))
    return coo(indices, np.zeros_like(like, shape=(0, *shape[sparse:])), shape, True)


def full_like(input: COO, value: Any) -> COO:
    if value != 0:
        raise Unsupported("full_like: a sparse tensor cannot be filled with another value than 0")
    return empty(input.values, input.shape, input.ndim - input.sparse_dim)


def transpose(input: Any, dim0: int, dim1: int) -> Any:
    return input.swapaxes(dim0, dim1)


def permute(input: Any, dims: Sequence[int]) -> Any:
    return input.transpose(dims)


def unsqueeze(input: COO, dim: int) -> COO:
    if dim > input.sparse_dim:
        values = np.expand_dims(input.values, dim - input.sparse_dim + 1)
        indices = input.indices
    else:
        values, indices = input.values, np.insert(input.indices, dim, 0, axis=0)
    return input.like(indices, values, (*input.shape[:dim], 1, *input.shape[dim:]), input.coalesced)


def matmul(input: Any, other: Any) -> Any:
    return input.dot(other)


def sum(input: COO, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    F = backend_for(input.values)
    dims = range(input.ndim) if dim is None else sorted({dim} if isinstance(dim, int) else set(dim))
    if len(dims) == input.ndim and not keepdim:
        return F.asarray(F.sum(input.values, None, False, dtype))
    if keepdim:
        out = sum(input, dims, False, dtype)
        for d in dims:
            out = unsqueeze(out, d) if isinstance(out, COO) else np.expand_dims(out, d)
        return out
    kept = [d for d in range(input.sparse_dim) if d not in dims]
    dense = tuple([d - input.sparse_dim + 1 for d in dims if d >= input.sparse_dim])
    values = F.sum(input.values, dense, False, dtype) if dense else F.sum(input.values[None], 0, False, dtype)
    if not kept:
        return F.sum(values, 0, False, dtype)
    shape = [n for d, n in enumerate(input.shape) if d not in dims]
    return input.like(input.indices[kept], values, shape).coalesce()


def index_select(input: COO, dim: int, index: Array) -> COO:
    shape = (*input.shape[:dim], len(index), *input.shape[dim + 1 :])
    if dim >= input.sparse_dim:
        values = input.values.take(index, dim - input.sparse_dim + 1)
        return input.like(input.indices, values, shape, input.coalesced)
    # Every stored element goes to all the places where its coordinate is asked for.
    n = input.shape[dim]
    order = np.argsort(index, kind="stable")
    starts = starts_of(index[order], n)
    own = input.indices[dim]
    source, offsets = numbered((starts[1:] - starts[:-1])[own])
    indices = input.indices[:, source]
    indices[dim] = order[starts[own[source]] + offsets]
    return input.like(indices, input.values[source], shape)


def narrow(input: COO, dim: int, start: int, length: int) -> COO:
    return index_select(input, dim, np.arange(start, start + length, like=input.indices))


def squeeze(input: COO, dim: tuple[int, ...]) -> COO:
    """Without the sparse dimensions `dim`, of length 1."""
    if any(d >= input.sparse_dim for d in dim) or len(dim) == input.sparse_dim:
        raise Unsupported(
            "squeeze: of a sparse tensor some sparse dimensions are taken away, not all and no dense ones"
        )
    kept = [d for d in range(input.ndim) if d not in dim]
    indices = input.indices[[d for d in kept if d < input.sparse_dim]]
    return input.like(indices, input.values, [input.shape[d] for d in kept], input.coalesced)


def relu_backward(g: Any, out: Any) -> Any:
    return mul(g, out.with_values((out.values > 0).astype(out.values.dtype)))


def select(input: COO, dim: int, index: int) -> Any:
    chosen = index_select(input, dim, np.zeros_like(input.indices, shape=(1,)) + index)
    if input.sparse_dim == 1 and dim == 0:
        return chosen.values.sum(0).astype(input.dtype)
    shape = (*input.shape[:dim], *input.shape[dim + 1 :])
    if dim >= input.sparse_dim:
        return chosen.like(chosen.indices, np.squeeze(chosen.values, dim - input.sparse_dim + 1), shape)
    kept = [d for d in range(input.sparse_dim) if d != dim]
    return chosen.like(chosen.indices[kept], chosen.values, shape)


def cat(tensors: Sequence[COO], dim: int = 0) -> COO:
    first = tensors[0]
    if any(not isinstance(t, COO) or t.sparse_dim != first.sparse_dim for t in tensors):
        raise RuntimeError(
            "cat: sparse tensors can only be joined with sparse ones of as many sparse dimensions"
        )
    length = math.fsum(t.shape[dim] for t in tensors)
    shape = (*first.shape[:dim], int(length), *first.shape[dim + 1 :])
    if dim >= first.sparse_dim:
        raise Unsupported("cat: sparse tensors are not joined along a dense dimension; call to_dense() first")
    parts, start = [], 0
    for t in tensors:
        indices = t.indices.copy()
        indices[dim] += start
        start += t.shape[dim]
        parts.append(indices)
    return first.like(np.concatenate(parts, axis=1), np.concatenate([t.values for t in tensors]), shape)


def slice_by(input: COO, index: Any) -> Any:
    """input[index] for numbers, slices and ... in a tuple."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(not isinstance(part, (int, slice)) and part is not Ellipsis for part in parts):
        raise Unsupported("a sparse tensor is indexed by numbers and slices only; call to_dense() first")
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    after = len(parts) - at - 1
    whole = (slice(None),) * (input.ndim - len(parts) + (at < len(parts)))
    out: Any = input
    for dim, part in reversed(list(enumerate((*parts[:at], *whole, *parts[at + 1 :][: max(after, 0)])))):
        if isinstance(part, slice):
            if part != slice(None):
                places = range(*part.indices(out.shape[dim]))
                out = index_select(out, dim, np.asarray(places, np.int64, like=input.indices))
        elif isinstance(out, COO):
            out = select(out, dim, part % out.shape[dim])
        else:
            out = out[(slice(None),) * dim + (part,)]
    return out.copy() if out is input else out


def vector_norm(x: COO, ord: float, dim: tuple[int, ...], keepdim: bool = False) -> Any:
    if len(dim) < x.ndim or keepdim or not ord > 0:
        raise Unsupported("of a sparse tensor there is the norm of all elements, of an order above 0")
    values = x.coalesce().values.reshape(-1)
    return backend_for(values).vector_norm(values, ord, (0,), False)


def stack(tensors: Sequence[COO], dim: int = 0) -> COO:
    return cat([unsqueeze(t, dim) for t in tensors], dim)


_FUNCTIONS = (
    add, asarray, cast, cat, clone, div, full_like, index_select, matmul, move, mul, narrow, new_zeros, permute, pow,
    relu_backward, select, slice_by, squeeze, stack, sub, sum, transpose, unsqueeze, vector_norm,
)  # fmt: skip
KERNELS: dict[str, Kernel] = {function.__name__: function for function in _FUNCTIONS}
KERNELS |= {name: _of_values(name, True) for name in OF_VALUES}
KERNELS |= {name: _of_values(name, False) for name in LINEAR}


class SparseBackend(Backend):
    """The kernels of one class of sparse arrays: those of `table`, and no others. called: the layout in error messages."""

    def __init__(self, kind: str, array_type: type, table: dict[str, Kernel], called: str) -> None:
        super().__init__(kind, array_type, {}, {}, _device_of)
        self._table, self._called = table, f"{called}{kind.upper()}"

    def find(self, name: str) -> Kernel:
        kernel = self._table.get(name)
        return _missing(name, self._called) if kernel is None else kernel


def _missing(name: str, backend: str) -> Kernel:
    """The kernel of an op that is not defined for sparse arrays: it raises PyTorch's error."""

    def kernel(*args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the '{backend}' backend: {name} is not defined for "
            "sparse tensors. Call to_dense() first."
        )

    return kernel


def _device_of(array: HeldElements) -> Device:
    return backend_for(array.values).device_of(array.values)


add_backend(SparseBackend("cpu", COO, KERNELS, "Sparse"))
add_backend(SparseBackend("cuda", CudaCOO, KERNELS, "Sparse"))
