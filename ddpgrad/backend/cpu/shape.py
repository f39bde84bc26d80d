"""Shapes for the CPU: views and copies that NumPy makes slowly, and large ones that threads make together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..dtype import numpy_of
from ..layout import in_order, memory_order
from .threads import WORTH_SHARING, in_parts

Array = np.ndarray[Any, Any]

COMPLETE = ("cat", "clone", "full", "full_like", "overwrite")

# Numbers, and rows and columns, from which a copy that a compiled kernel turns is done sooner.
_MANY, _SIDE = 4096, 16


def overwrite(out: Array, value: Any) -> None:
    """Write an array, broadcast and converted, or a number to `out`."""
    if out.size < WORTH_SHARING:
        out[...] = value
        return
    if not getattr(value, "ndim", 0):
        fill(out, value)
        return
    source = value if value.shape == out.shape else np.broadcast_to(value, out.shape)
    along = max(range(out.ndim), key=lambda d: abs(out.strides[d]) if out.shape[d] > 1 else -1)
    parts = partial(_overwrite_part, out.swapaxes(0, along), source.swapaxes(0, along))
    in_parts(parts, out.shape[along], out.size)


def _overwrite_part(out: Array, source: Array, first: int, end: int) -> None:
    out[first:end] = source[first:end]


def fill(out: Array, value: Any) -> None:
    """Write one value to all of a large array."""
    dims = memory_order(out)
    flat = out.transpose(dims)
    if not flat.flags.c_contiguous or out.itemsize > 8:
        out[...] = value
        return
    from .moves import fill_vector

    bits = np.dtype(f"u{out.itemsize}")
    fill_vector(flat.reshape(-1).view(bits), np.array(value, out.dtype).view(bits)[()])


def full(shape: Sequence[int], value: Any, dtype: Any, like: Any = None) -> Array:
    """A new array of one value."""
    kind = numpy_of(dtype)
    if value.__class__ is int and not value:
        return np.zeros(shape, kind)
    out = np.empty(shape, kind)
    overwrite(out, value)
    return out


def full_like(input: Array, value: Any) -> Array:
    """`full` with the shape and dtype of `input`."""
    return full(input.shape, value, input.dtype)


def clone(input: Array, memory_format: Any = None) -> Array:
    """A copy that lies as `input` does, or as `memory_format` says."""
    order = getattr(memory_format, "order", None)
    if order is not None:
        return in_order(input, order(input.ndim))
    if input.size < WORTH_SHARING:
        return np.array(input, copy=True)
    out = np.empty_like(input)
    overwrite(out, input)
    return out


def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
    """The arrays one after the other along `dim`."""
    first, count = tensors[0], 0
    for x in tensors:
        count += x.size
    if count < WORTH_SHARING or any(x.dtype != first.dtype or not x.flags.c_contiguous for x in tensors):
        return np.concatenate(tensors, axis=dim)
    dim, ends = dim % first.ndim, np.cumsum([x.shape[dim] for x in tensors]).tolist()
    out = np.empty((*first.shape[:dim], ends[-1], *first.shape[dim + 1 :]), first.dtype)
    for x, end in zip(tensors, ends, strict=True):
        overwrite(out[(slice(None),) * dim + (slice(end - x.shape[dim], end),)], x)
    return out


def flip(input: Array, dims: tuple[int, ...]) -> Array:
    """A copy in the order of the dimensions, those of `dims` backwards."""
    ndim = input.ndim
    flipped = {d % ndim for d in dims} if ndim else set()
    if input.size < _MANY or ndim - 1 not in flipped or not input.flags.c_contiguous or input.itemsize > 8:
        return NotImplemented
    from .moves import reverse_rows

    rest = tuple(flipped - {ndim - 1})
    rows = np.flip(input, rest).reshape(-1, input.shape[-1]) if rest else input.reshape(-1, input.shape[-1])
    out, bits = np.empty(input.shape, input.dtype), np.dtype(f"u{input.itemsize}")
    reverse_rows(rows.view(bits), out.reshape(rows.shape).view(bits))
    return out


def tril(input: Array, diagonal: int = 0) -> Array:
    """The lower triangles of matrices, and 0 above."""
    return _triangle(input, diagonal, True)


def triu(input: Array, diagonal: int = 0) -> Array:
    """The upper triangles of matrices, and 0 below."""
    return _triangle(input, diagonal, False)


def _triangle(input: Array, diagonal: int, lower: bool) -> Array:
    if input.size < _MANY or not input.flags.c_contiguous or input.itemsize > 8:
        return NotImplemented
    from .moves import triangles

    out, bits = np.empty(input.shape, input.dtype), np.dtype(f"u{input.itemsize}")
    matrices = input.view(bits).reshape(-1, *input.shape[-2:])
    triangles(matrices, diagonal, lower, out.view(bits).reshape(matrices.shape))
    return out


def expand(input: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """`input` with dimensions of length 1 stretched to `shape`: ten times as fast as numpy.broadcast_to."""
    if not input.flags.c_contiguous or input.dtype.char not in "fd" or not input.size:
        return NotImplemented
    lead = len(shape) - input.ndim
    strides = [0] * lead
    for have, wanted, stride in zip(input.shape, shape[lead:], input.strides, strict=True):
        strides.append(stride if have == wanted else 0)
    # A buffer must be contiguous and of a type that Python knows, hence the test above.
    return np.ndarray(shape, input.dtype, input, 0, strides)


def to_contiguous(input: np.ndarray) -> np.ndarray:
    """A copy in the order of the dimensions of float32 matrices whose memory runs along their columns."""
    if input.size < _MANY or input.dtype.char != "f" or not (input.dtype.isnative and input.flags.aligned):
        return NotImplemented
    sizes, steps = _merged(input)
    if len(sizes) not in (2, 3) or steps[-2] != 4 or min(steps) <= 0 or min(sizes[-2:]) < _SIDE:
        return NotImplemented
    from .order import turn

    if len(sizes) == 2:
        sizes, steps = [1, *sizes], [0, *steps]
    shape, strides = (sizes[0], sizes[2], sizes[1]), (steps[0], steps[2], 4)
    out = np.empty(input.shape, np.float32)
    turn(np.lib.stride_tricks.as_strided(input, shape, strides), out.reshape(sizes))
    return out


def _merged(x: np.ndarray) -> tuple[list[int], list[int]]:
    """Sizes and steps of the dimensions, of which those that run through memory as one are one."""
    sizes: list[int] = []
    steps: list[int] = []
    for n, step in zip(x.shape, x.strides, strict=True):
        if sizes and steps[-1] == n * step:
            sizes[-1] *= n
            steps[-1] = step
        elif n > 1:
            sizes.append(n)
            steps.append(step)
    return sizes, steps
