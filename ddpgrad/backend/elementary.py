"""The elementary kernels, over an array library `xp` that follows the array API.

NumPy and CuPy share these definitions; each device kind adds faster or native versions of
its own (see `cpu/`, `cuda/`). Names and arguments are those of the ops of the same name,
which are PyTorch's; `dim` may be an int, a tuple of ints or None (all).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .device import Device
from .dtype import numpy_of
from .registry import to_device

Array = Any
Dim = int | tuple[int, ...] | None


def elementary(xp: ModuleType) -> dict[str, Any]:
    """Kernel name -> function on the arrays of `xp`."""
    return {
        **_ufuncs(xp),
        **_composed(xp),
        **_reductions(xp),
        **_shapes(xp),
        **_indexing(xp),
        **_creation(xp),
    }


def _ufuncs(xp: ModuleType) -> dict[str, Any]:
    same_name = [
        "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh", "floor",
        "ceil", "trunc", "square", "sign", "maximum", "minimum", "isnan", "isinf", "isfinite", "logical_and",
        "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide",
        "remainder", "fmod", "logaddexp",
    ]  # fmt: skip
    renamed = {
        "add": "add", "sub": "subtract", "mul": "multiply", "div": "true_divide", "pow": "power",
        "neg": "negative", "abs": "absolute", "eq": "equal", "ne": "not_equal", "lt": "less",
        "le": "less_equal", "gt": "greater", "ge": "greater_equal", "bitwise_not": "invert",
        "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
        "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    }  # fmt: skip
    return {name: getattr(xp, name) for name in same_name} | {k: getattr(xp, v) for k, v in renamed.items()}


def _composed(xp: ModuleType) -> dict[str, Any]:
    def reciprocal(input: Array) -> Array:
        return 1 / input

    def rint(input: Array) -> Array:
        return xp.rint(input) if input.dtype.kind not in "bui" else input.copy()

    def rsqrt(input: Array) -> Array:
        return 1 / xp.sqrt(input)

    def sigmoid(input: Array) -> Array:
        # tanh does not overflow, where exp(-x) does for large negative x.
        out = xp.tanh(input * 0.5)
        return out * 0.5 + 0.5

    def clamp(input: Array, min: Any = None, max: Any = None) -> Array:
        return xp.clip(input, min, max)

    def where(condition: Array, input: Any, other: Any) -> Array:
        return xp.where(condition, input, other)

    def cast(input: Array, dtype: Any) -> Array:
        return input.astype(numpy_of(dtype), copy=False)

    def clone(input: Array) -> Array:
        return xp.array(input, copy=True)

    def contiguous(input: Array) -> Array:
        return xp.ascontiguousarray(input) if input.ndim else input

    return {
        "reciprocal": reciprocal, "rsqrt": rsqrt, "rint": rint, "sigmoid": sigmoid, "clamp": clamp, "where": where,
        "cast": cast, "clone": clone, "contiguous": contiguous,
    }  # fmt: skip


def _reductions(xp: ModuleType) -> dict[str, Any]:
    def _sum_type(input: Array) -> Any:
        """None (its own), or int64 for integers and bools."""
        return xp.int64 if input.dtype.kind in "bui" else None

    def sum(input: Array, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Array:
        kind = _sum_type(input) if dtype is None else numpy_of(dtype)
        return input.sum(axis=dim, keepdims=keepdim, dtype=kind)  # the method is twice as fast as xp.sum

    def prod(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.prod(input, axis=dim, keepdims=keepdim, dtype=_sum_type(input))

    def mean(input: Array, dim: Dim = None, keepdim: bool = False, dtype: Any = None) -> Array:
        return xp.mean(input, axis=dim, keepdims=keepdim, dtype=None if dtype is None else numpy_of(dtype))

    def amax(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.max(input, axis=dim, keepdims=keepdim)

    def amin(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.min(input, axis=dim, keepdims=keepdim)

    def argmax(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        return xp.argmax(input, axis=dim, keepdims=keepdim)

    def argmin(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        return xp.argmin(input, axis=dim, keepdims=keepdim)

    def any(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.any(input, axis=dim, keepdims=keepdim)

    def all(input: Array, dim: Dim = None, keepdim: bool = False) -> Array:
        return xp.all(input, axis=dim, keepdims=keepdim)

    def cumsum(input: Array, dim: int) -> Array:
        if not input.ndim:  # NumPy makes one dimension of none
            return input.astype(_sum_type(input) or input.dtype)
        return xp.cumsum(input, axis=dim, dtype=_sum_type(input))

    def argsort(input: Array, dim: int = -1, descending: bool = False) -> Array:
        if not input.ndim:
            return xp.zeros((), xp.int64)
        if not descending:
            return xp.argsort(input, axis=dim, kind="stable")
        # Stable in descending order: sort the reversed array and read it backwards.
        last = input.shape[dim] - 1
        order = xp.argsort(xp.flip(input, dim), axis=dim, kind="stable")
        return last - xp.flip(order, dim)

    return {
        "sum": sum, "prod": prod, "mean": mean, "amax": amax, "amin": amin, "argmax": argmax, "argmin": argmin,
        "any": any, "all": all, "cumsum": cumsum, "argsort": argsort,
    }  # fmt: skip


def _shapes(xp: ModuleType) -> dict[str, Any]:
    def reshape(input: Array, shape: Sequence[int]) -> Array:
        return input.reshape(shape)

    def permute(input: Array, dims: Sequence[int]) -> Array:
        return input.transpose(dims)

    def transpose(input: Array, dim0: int, dim1: int) -> Array:
        return input.swapaxes(dim0, dim1) if input.ndim else input[...]

    def expand(input: Array, shape: Sequence[int]) -> Array:
        out = xp.broadcast_to(input, shape)
        # Where nothing is repeated the result can be written to, which NumPy would refuse.
        return input.reshape(shape) if out.size == input.size else out

    def unsqueeze(input: Array, dim: int) -> Array:
        return xp.expand_dims(input, dim)

    def squeeze(input: Array, dim: tuple[int, ...]) -> Array:
        return xp.squeeze(input, axis=dim)

    def flip(input: Array, dims: tuple[int, ...]) -> Array:
        return xp.flip(input, dims).copy() if input.ndim else input.copy()

    def roll(input: Array, shifts: Any, dims: Any = None) -> Array:
        return xp.roll(input, shifts, dims)

    def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
        return xp.concatenate(tensors, axis=dim)

    def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
        return xp.stack(tensors, axis=dim)

    def narrow(input: Array, dim: int, start: int, length: int) -> Array:
        return input[(slice(None),) * (dim % input.ndim) + (slice(start, start + length),)]

    def tile(input: Array, dims: Sequence[int]) -> Array:
        return xp.tile(input, dims)

    def tril(input: Array, diagonal: int = 0) -> Array:
        return xp.tril(input, diagonal)

    def triu(input: Array, diagonal: int = 0) -> Array:
        return xp.triu(input, diagonal)

    def diagonal(input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
        return xp.diagonal(input, offset, dim1, dim2)

    def pad(input: Array, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Array:
        return xp.pad(input, widths, mode="constant", constant_values=value)

    return {
        "reshape": reshape, "permute": permute, "transpose": transpose, "expand": expand, "unsqueeze": unsqueeze,
        "squeeze": squeeze, "flip": flip, "roll": roll, "cat": cat, "stack": stack, "narrow": narrow, "tile": tile,
        "tril": tril, "triu": triu, "diagonal": diagonal, "constant_pad": pad,
    }  # fmt: skip


def _indexing(xp: ModuleType) -> dict[str, Any]:
    def getitem(input: Array, index: Any) -> Array:
        return input[index]

    def index_put(input: Array, index: Any, value: Any) -> Array:
        out = xp.array(input, copy=True)
        out[index] = value
        return out

    def index_put_add(input: Array, index: Any, value: Any) -> Array:
        """`input` with `value` added at `index`; repeated places add up."""
        out = xp.array(input, copy=True)
        xp.add.at(out, index, value)
        return out

    def index_select(input: Array, dim: int, index: Array) -> Array:
        return xp.take(input, index, axis=dim)

    def gather(input: Array, dim: int, index: Array) -> Array:
        return input[_along(xp, index, dim)]

    def scatter(input: Array, dim: int, index: Array, src: Any) -> Array:
        out = xp.array(input, copy=True)
        out[_along(xp, index, dim)] = _like_index(src, index)
        return out

    def scatter_add(input: Array, dim: int, index: Array, src: Any) -> Array:
        out = xp.array(input, copy=True)
        xp.add.at(out, _along(xp, index, dim), _like_index(src, index))
        return out

    def embedding(input: Array, indices: Array, padding_idx: int | None = None) -> Array:
        return xp.take(input, indices, axis=0)

    def nonzero(input: Array) -> Array:
        if not input.ndim:
            return xp.empty((int(input != 0), 0), xp.int64)
        return xp.stack(xp.nonzero(input), axis=1)

    return {
        "getitem": getitem, "index_put": index_put, "index_put_add": index_put_add, "index_select": index_select,
        "gather": gather, "scatter": scatter, "scatter_add": scatter_add, "embedding": embedding,
        "nonzero": nonzero,
    }  # fmt: skip


def _along(xp: ModuleType, index: Array, dim: int) -> tuple[Array, ...]:
    """Advanced index that walks `index` along `dim` and counts the other dimensions."""
    dim %= index.ndim or 1
    grid = []
    for axis, size in enumerate(index.shape):
        shape = [1] * index.ndim
        shape[axis] = size
        grid.append(index if axis == dim else xp.arange(size).reshape(shape))
    return tuple(grid)


def _like_index(src: Any, index: Array) -> Any:
    """The part of `src` that `index` covers (PyTorch lets `src` be larger)."""
    return src[tuple(slice(n) for n in index.shape)] if getattr(src, "ndim", 0) else src


def _creation(xp: ModuleType) -> dict[str, Any]:
    def full(shape: Sequence[int], value: Any, dtype: Any) -> Array:
        return xp.full(shape, value, dtype=numpy_of(dtype))

    def full_like(input: Array, value: Any) -> Array:
        return xp.full(input.shape, value, dtype=input.dtype)

    def new_zeros(input: Array, shape: Sequence[int]) -> Array:
        return xp.zeros(shape, dtype=input.dtype)

    def matmul(input: Array, other: Array) -> Array:
        return xp.matmul(input, other)

    def asarray(data: Any, dtype: Any = None) -> Array:
        return xp.asarray(data, dtype=None if dtype is None else numpy_of(dtype))

    def move(input: Array, device: Device, source: Device) -> Array:
        return to_device(input, device)

    return {
        "full": full, "full_like": full_like, "new_zeros": new_zeros, "matmul": matmul, "asarray": asarray,
        "move": move,
    }  # fmt: skip
