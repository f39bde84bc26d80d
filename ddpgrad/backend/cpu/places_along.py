"""Reading and adding at places along one dimension, compiled for the CPU: float32 and float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..overwriting import to_write
from .vectormath import compiled_for, kernel, part

Array = np.ndarray

_INDEX, _KINDS = np.dtype(np.int64), "fdl"
_SMALL = 1024  # elements that NumPy has written before compiled code has started


def gather(input: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on; `RuntimeError` for an index outside of [0, size)."""
    if not _handles(input, dim, index) or not compiled_for(input):
        return NotImplemented
    out = np.empty(index.shape, input.dtype)
    outer, inner = math.prod(out.shape[:dim]), math.prod(out.shape[dim + 1 :])
    bad = _gather(
        input.reshape(outer, -1, inner), index.reshape(outer, -1, inner), out.reshape(outer, -1, inner)
    )
    if bad >= 0:
        raise _outside(index, bad, dim, input.shape[dim])
    return out


def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Array:
    """`input` with the elements of `src` added at the places `index` along `dim`, as `gather` reads them."""
    return _written(_add, input, dim, index, src) if compiled_for(input) else NotImplemented


def scatter_src(input: Array, dim: int, index: Array, src: Any) -> Array:
    """`input` with the elements of `src`, an array or a number, at the places `index` along `dim`; the last of several stays."""
    if index.size < _SMALL:
        return NotImplemented
    if src.__class__ is float or src.__class__ is int:
        src = np.broadcast_to(np.array(src, input.dtype), index.shape)
    return _written(_put, input, dim, index, src)


def _written(write: Any, input: Array, dim: int, index: Array, src: Any) -> Array:
    if not _handles(input, dim, index) or src.dtype != input.dtype or src.shape != index.shape:
        return NotImplemented
    out = to_write(np, input)
    if not out.flags.c_contiguous:
        return NotImplemented
    shape = math.prod(src.shape[:dim]), src.shape[dim], math.prod(src.shape[dim + 1 :])
    bad = write(
        out.reshape(shape[0], -1, shape[2]), index.reshape(shape), np.ascontiguousarray(src).reshape(shape)
    )
    if bad >= 0:
        raise _outside(index, bad, dim, input.shape[dim])
    return out


def _handles(input: Array, dim: int, index: Array) -> bool:
    """Whether `index` has one element or more, and the lengths of `input` in all dimensions but `dim`."""
    if index.dtype != _INDEX or not index.size or input.dtype.char not in _KINDS:
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


_gather, _add, _put = map(_at_places, (_read, _add_to, _write))
