"""What ops compute on compressed arrays: as on those in coordinates, but for the layout of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..registry import Unsupported, add_backend, backend_for
from . import kernels
from .compressed import Compressed, CudaCompressed
from .kernels import KERNELS, LINEAR, OF_VALUES, SparseBackend

Array = Any


def add(input: Any, other: Any) -> Any:
    return input + other


def sub(input: Any, other: Any) -> Any:
    return input - other


def full_like(input: Compressed, value: Any) -> Compressed:
    """The stored elements are `value`; the others stay 0."""
    if value == 0:
        return new_zeros(input, input.shape)
    return input.with_values(backend_for(input.values).full_like(input.values, value))


def new_zeros(input: Compressed, shape: Sequence[int]) -> Any:
    if tuple(shape) != input.shape:
        return kernels.new_zeros(input.coo(), shape)
    out = input.with_values(input.values)
    out.clear()
    return out


def select(input: Compressed, dim: int, index: int) -> Any:
    if input.batch and not dim:
        return input.member(index)
    return kernels.select(input.coo(), dim, index)


def slice_by(input: Compressed, index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    while input.batch and parts and isinstance(parts[0], int):
        input, parts = input.member(parts[0]), parts[1:]
        if not parts:
            return input.copy()
        index = parts
    if any(isinstance(part, slice) and part != slice(None) for part in parts):
        raise Unsupported(
            f"a tensor of layout torch.{input.layout} is indexed by numbers only; call to_sparse_coo() or to_dense() first"
        )
    return kernels.slice_by(input.coo(), index)


def sum(input: Compressed, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dim is None or (not keepdim and len({dim} if isinstance(dim, int) else set(dim)) == input.ndim):
        return kernels.sum(input.coo(), None, False, dtype)
    if not keepdim:
        raise RuntimeError(
            f"reduction operations on tensors of layout torch.{input.layout} with keepdim=False are unsupported: give keepdim=True"
        )
    whole = input.coo()
    for over in sorted({dim} if isinstance(dim, int) else set(dim)):
        lines = whole.indices.copy()
        lines[over] = 0
        shape = [1 if d == over else n for d, n in enumerate(whole.shape)]
        whole = whole.like(lines, whole.values, shape).coalesce()
    return input.alike(whole if dtype is None else whole.astype(dtype))


_FUNCTIONS = (add, full_like, new_zeros, select, slice_by, sub, sum)
_SHARED = (
    "asarray", "cast", "clone", "div", "matmul", "move", "mul", "permute", "pow", "relu_backward",
    "transpose",
)  # fmt: skip
"""Kernels that are methods of either kind of array."""


def _of_values(name: str) -> Callable[..., Any]:
    def kernel(input: Compressed, *options: Any) -> Compressed:
        return input.with_values(getattr(backend_for(input.values), name)(input.values, *options))

    return kernel


_KERNELS = {name: KERNELS[name] for name in _SHARED} | {
    function.__name__: function for function in _FUNCTIONS
}
_KERNELS |= {name: _of_values(name) for name in (*OF_VALUES, *LINEAR)}

add_backend(SparseBackend("cpu", Compressed, _KERNELS, "SparseCsr"))
add_backend(SparseBackend("cuda", CudaCompressed, _KERNELS, "SparseCsr"))
