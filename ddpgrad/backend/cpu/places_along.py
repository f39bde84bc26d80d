"""Reading and combining at places along one dimension, compiled for the CPU: float32 and float64, moves in 16 bits as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..overwriting import to_write
from .half import is_half, stored
from .vectormath import compiled_for, kernel, part

Array = np.ndarray

_INDEX, _KINDS = np.dtype(np.int64), "fdl"
_SMALL = 1024  # elements that NumPy has written before compiled code has started


def gather(input: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on; `RuntimeError` for an index outside of [0, size)."""
    if not _handles(input, dim, index):
        return NotImplemented
    out = np.empty(index.shape, input.dtype)
    shape = math.prod(out.shape[:dim]), -1, math.prod(out.shape[dim + 1 :])
    bad = _gather(*(stored(x).reshape(shape) for x in (input, index, out)))
    if bad >= 0:
        raise _outside(index, bad, dim, input.shape[dim])
    return out


def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Array:
    """`input` with the elements of `src` added at the places `index` along `dim`, as `gather` reads them."""
    return _written([_add], input, dim, index, src) if compiled_for(input) else NotImplemented


def scatter_src(input: Array, dim: int, index: Array, src: Any) -> Array:
    """`input` with the elements of `src`, an array or a number, at the places `index` along `dim`; the last of several stays."""
    if index.size < _SMALL:
        return NotImplemented
    if src.__class__ is float or src.__class__ is int:
        src = np.broadcast_to(np.array(src, input.dtype), index.shape)
    return _written([_put], input, dim, index, src)


def scatter_reduce_by(
    input: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool
) -> Array:
    """The product ("prod") or an extremum ("amax", "amin") of the elements of `src` that share a place along `dim`."""
    if index.size < _SMALL or not compiled_for(input):
        return NotImplemented
    combine = [_COMBINED[reduce]]
    if not include_self:
        combine.insert(0, _one if reduce == "prod" else _put)
    return _written(combine, input, dim, index, src)


def _written(writes: Sequence[Any], input: Array, dim: int, index: Array, src: Any) -> Array:
    if not _handles(input, dim, index) or src.dtype != input.dtype or src.shape != index.shape:
        return NotImplemented
    out = to_write(np, input)
    if not out.flags.c_contiguous:
        return NotImplemented
    shape = math.prod(src.shape[:dim]), -1, math.prod(src.shape[dim + 1 :])
    for write in writes:
        bad = write(*(stored(np.ascontiguousarray(x)).reshape(shape) for x in (out, index, src)))
        if bad >= 0:
            raise _outside(index, bad, dim, input.shape[dim])
    return out


def _handles(input: Array, dim: int, index: Array) -> bool:
    """Whether `index` has one element or more, and the lengths of `input` in all dimensions but `dim`."""
    if index.dtype != _INDEX or not index.size or not (input.dtype.char in _KINDS or is_half(input.dtype)):
        return False
    mine, given = input.shape, index.shape
    if mine == given:
        return bool(mine)
    return len(mine) == len(given) and mine[:dim] == given[:dim] and mine[dim + 1 :] == given[dim + 1 :]


def _outside(index: Array, bad: int, dim: int, size: int) -> RuntimeError:
    value: Any = index.reshape(-1)[bad]
    return RuntimeError(
        f"index {value} is out of bounds for dimension {dim} with size {size} (index out of range)"
    )


def _at_places(move: Any) -> Any:
    """A loop that moves elements between `rows` and the places of `table` at `index`; it returns that of one out of range, or -1."""
    move = part(move)

    def loop(table, index, rows):
        outer, length, inner = index.shape
        size = table.shape[1]
        for i in range(outer):
            for j in range(length):
                for k in range(inner):
                    place = index[i, j, k]
                    if place < 0 or place >= size:
                        return (i * length + j) * inner + k
                    move(table, place, rows, i, j, k)
        return -1

    return kernel(loop)


def _read(table, place, rows, i, j, k):
    rows[i, j, k] = table[i, place, k]


def _add_to(table, place, rows, i, j, k):
    table[i, place, k] += rows[i, j, k]


def _write(table, place, rows, i, j, k):
    table[i, place, k] = rows[i, j, k]


def _write_one(table, place, rows, i, j, k):
    table[i, place, k] = 1


def _multiply(table, place, rows, i, j, k):
    table[i, place, k] *= rows[i, j, k]


def _raise(table, place, rows, i, j, k):
    x = rows[i, j, k]
    if x > table[i, place, k] or x != x:
        table[i, place, k] = x


def _lower(table, place, rows, i, j, k):
    x = rows[i, j, k]
    if x < table[i, place, k] or x != x:
        table[i, place, k] = x


_gather, _add, _put, _one, _product, _largest, _smallest = map(
    _at_places, (_read, _add_to, _write, _write_one, _multiply, _raise, _lower)
)
_COMBINED = {"prod": _product, "amax": _largest, "amin": _smallest}
