"""Large arrays that are copied, converted and filled by threads, and compiled loops that only move elements.

In the loops unsigned integers of their width stand for elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ..layout import empty_in_order, memory_order
from .threads import in_parts, shared
from .vectormath import instruction, kernel

Array = np.ndarray[Any, Any]

_BLOCK = 32
_SIDE = 16  # rows and columns from which a copy that is turned in registers is done sooner


def overwrite(out: Array, value: Any) -> None:
    """Write an array, broadcast and converted, or a number to `out`, which is large."""
    if not getattr(value, "ndim", 0):
        fill(out, value)
        return
    if np.may_share_memory(out, value):  # NumPy copies first what would be overwritten before it is read
        out[...] = value
        return
    source = value if value.shape == out.shape else np.broadcast_to(value, out.shape)
    along = max(range(out.ndim), key=lambda d: abs(out.strides[d]) if out.shape[d] > 1 else -1)
    parts = partial(_overwrite_part, out.swapaxes(0, along), source.swapaxes(0, along))
    in_parts(parts, out.shape[along], out.size)


def _overwrite_part(out: Array, source: Array, first: int, end: int) -> None:
    source, out = source[first:end], out[first:end]
    columns = turned(source) if _is_plain(out) and out.flags.c_contiguous else None
    if columns is None:
        out[...] = source
    else:
        turn_back(columns, out)


def turned(x: Array) -> Array | None:
    """float32 matrices whose memory runs along their columns, as (*, columns, rows); None for others."""
    if not _is_plain(x):
        return None
    sizes, steps = _merged(x)
    if len(sizes) not in (2, 3) or steps[-2] != 4 or min(steps) <= 0 or min(sizes[-2:]) < _SIDE:
        return None
    if len(sizes) == 2:
        sizes, steps = [1, *sizes], [0, *steps]
    shape, strides = (sizes[0], sizes[2], sizes[1]), (steps[0], steps[2], 4)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def turn_back(columns: Array, out: Array) -> None:
    """Copy what `turned` gave to `out`, which lies in the order of the dimensions."""
    from .order import turn

    count, wide, high = columns.shape
    turn(columns, out.reshape(count, high, wide))


def _is_plain(x: Array) -> bool:
    return x.dtype.char == "f" and x.dtype.isnative and x.flags.aligned


def _merged(x: Array) -> tuple[list[int], list[int]]:
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


def fill(out: Array, value: Any) -> None:
    """Write one value to all of a large array."""
    dims = memory_order(out)
    flat = out.transpose(dims)
    if not flat.flags.c_contiguous or out.itemsize > 8:
        out[...] = value
        return
    bits = np.dtype(f"u{out.itemsize}")
    fill_vector(flat.reshape(-1).view(bits), np.array(value, out.dtype).view(bits)[()])


def filled(shape: Sequence[int], value: Any, dtype: Any) -> Array:
    """A new large array of one value."""
    out = np.empty(shape, dtype)
    overwrite(out, value)
    return out


def copied(input: Array) -> Array:
    """A copy of a large array, which lies as that does."""
    out = (
        np.empty_like(input)
        if 0 not in input.strides
        else empty_in_order(input, input.shape, input.dtype, memory_order(input))
    )
    overwrite(out, input)
    return out


def joined(tensors: Sequence[Array], dim: int) -> Array:
    """Large arrays of one type and in the order of the dimensions, one after the other along `dim`, by threads."""
    first = tensors[0]
    dim, ends = dim % first.ndim, np.cumsum([x.shape[dim] for x in tensors]).tolist()
    out = np.empty((*first.shape[:dim], ends[-1], *first.shape[dim + 1 :]), first.dtype)
    for x, end in zip(tensors, ends, strict=True):
        overwrite(out[(slice(None),) * dim + (slice(end - x.shape[dim], end),)], x)
    return out


@shared("out")
@kernel
def fill_vector(out, value):
    """Write one value to a vector."""
    for i in range(out.size):
        out[i] = value


@instruction
def _turn(typingctx: Any, source: Any, target: Any, example: Any) -> Any:
    """Copy a block of what `example` is from its end to its start, from one address to another."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(example.bitwidth), _BLOCK)
        place, sink = (builder.inttoptr(x, vector.as_pointer()) for x in arguments[:2])
        block = builder.load(place, align=example.bitwidth // 8)
        order = ir.Constant(ir.VectorType(ir.IntType(32), _BLOCK), list(range(_BLOCK))[::-1])
        turned = builder.shuffle_vector(block, ir.Constant(vector, ir.Undefined), order)
        builder.store(turned, sink, align=example.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, example), build


@shared("rows", "out")
@kernel
def reverse_rows(rows, out):
    """Copy rows from their end to their start."""
    length = rows.shape[1]
    whole = length - length % _BLOCK
    for i in range(rows.shape[0]):
        row, sink = rows[i], out[i]
        source, target, width = row.ctypes.data, sink.ctypes.data, row.itemsize
        for start in range(0, whole, _BLOCK):
            _turn(source + (length - start - _BLOCK) * width, target + start * width, row[0])
        for j in range(whole, length):
            sink[j] = row[length - 1 - j]


@shared("matrices", "out")
@kernel
def triangles(matrices, diagonal, lower, out):
    """Copy what is on the diagonal, or on one side of it, and write 0 elsewhere."""
    count, high, wide = matrices.shape
    for i in range(count):
        for r in range(high):
            edge = min(max(r + diagonal + (1 if lower else 0), 0), wide)
            row, sink = matrices[i, r], out[i, r]
            for j in range(wide):
                if (j < edge) == lower:
                    sink[j] = row[j]
                else:
                    sink[j] = 0
