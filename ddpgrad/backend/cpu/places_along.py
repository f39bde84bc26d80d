"""Reading and adding at places along one dimension, compiled for the CPU: float32 and float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..overwriting import to_write
from .vectormath import compiled_for, kernel

Array = np.ndarray

_INDEX = np.dtype(np.int64)


def gather(input: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on; `RuntimeError` for an index outside of [0, size)."""
    if not _handles(input, dim, index):
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
    if not _handles(input, dim, index) or not compiled_for(input, src) or src.shape != index.shape:
        return NotImplemented
    out = to_write(np, input)
    if not out.flags.c_contiguous:
        return NotImplemented
    outer, inner = math.prod(src.shape[:dim]), math.prod(src.shape[dim + 1 :])
    bad = _add(out.reshape(outer, -1, inner), index.reshape(outer, -1, inner), src.reshape(outer, -1, inner))
    if bad >= 0:
        raise _outside(index, bad, dim, input.shape[dim])
    return out


def _handles(input: Array, dim: int, index: Array) -> bool:
    """Whether `index` has one element or more, and the lengths of `input` in all dimensions but `dim`."""
    if index.dtype != _INDEX or not index.size or not compiled_for(input):
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


@kernel
def _gather(x, index, out):
    """Fill out; return the place of an index that is out of range, or -1."""
    outer, length, inner = index.shape
    size = x.shape[1]
    for i in range(outer):
        for j in range(length):
            for k in range(inner):
                place = index[i, j, k]
                if place < 0 or place >= size:
                    return (i * length + j) * inner + k
                out[i, j, k] = x[i, place, k]
    return -1


@kernel
def _add(out, index, src):
    """Add src to out; return the place of an index that is out of range, or -1."""
    outer, length, inner = index.shape
    size = out.shape[1]
    for i in range(outer):
        for j in range(length):
            for k in range(inner):
                place = index[i, j, k]
                if place < 0 or place >= size:
                    return (i * length + j) * inner + k
                out[i, place, k] += src[i, j, k]
    return -1
