"""Sorting, compiled for the CPU: by the bits of a number, which are compared as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from .half import cast, is_half
from .kernel_cache import cached
from .threads import shared
from .vectormath import _OPTIONS, to_ordered

Array = np.ndarray[Any, Any]

# Elements along the dimension from which sorting by digits is done sooner than by comparisons.
_LONG = 4096
_SMALL = 1024  # elements of which NumPy finds places before compiled code has started
_DIGIT = 11  # bits
_INLINED: Any = {"forceinline": True, **_OPTIONS}


def argsort(input: Array, dim: int = -1, descending: bool = False) -> Array:
    """Where the elements along `dim` are in order; of equal ones the first comes first, and nan is largest."""
    input = _as_numbers(input)
    if not _handles(input) or not _LONG <= input.shape[dim] < 1 << 31:
        return NotImplemented
    rows = _rows(input, dim)
    out = np.empty(rows.shape, np.int64)
    _sort(rows, descending, out)
    return _back(out, input, dim)


def nonzero(input: Array) -> Array:
    """Where the elements are that are not zero, one row each; places of one dimension lie one after another."""
    if not input.ndim or input.size < _SMALL:
        return NotImplemented
    seen = np.ascontiguousarray(input if input.dtype == bool else input != 0)
    lead = input.shape[:-1]
    out = np.empty((input.ndim, np.count_nonzero(seen)), np.int64)
    if not out.size:
        return out.T
    rows = out[0] if lead else np.empty(out.shape[1], np.int64)
    _seen(seen.view(np.uint8).reshape(-1, input.shape[-1]), rows, out[-1])
    if len(lead) > 1:
        out[:-1] = np.unravel_index(rows, lead)
    return out.T


def unique(input: Array, dim: int | None) -> tuple[Array, Array, Array]:
    """(sorted distinct elements, where each element is among them, how often each occurs)."""
    if dim is not None or not _handles(input) or input.size < _LONG:
        return NotImplemented
    flat = np.ascontiguousarray(input).reshape(-1)
    order = argsort(flat)
    ordered = flat[order]
    new = np.empty(len(flat), bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    inverse = np.empty(len(flat), np.int64)
    inverse[order] = np.cumsum(new) - 1
    return ordered[starts], inverse.reshape(input.shape), np.diff(starts, append=len(flat))


def _as_numbers(input: Array) -> Array:
    return cast(input, np.float32) if input.size >= _SMALL and is_half(input.dtype) else input


def _handles(input: Array) -> bool:
    return bool(input.ndim) and input.dtype.char in "fdilq" and input.dtype.isnative


def _rows(x: Array, dim: int) -> Array:
    last = x if dim in (-1, x.ndim - 1) else x.swapaxes(dim, -1)
    return np.ascontiguousarray(last).reshape(-1, x.shape[dim])


def _back(rows: Array, like: Array, dim: int) -> Array:
    if dim in (-1, like.ndim - 1):
        return rows.reshape(*like.shape[:-1], rows.shape[1])
    return rows.reshape(*like.swapaxes(dim, -1).shape[:-1], rows.shape[1]).swapaxes(dim, -1)


def _ordered(x):
    """An integer that orders as x does, a nan above all: of 32 bits for float32 and int32, else of 64."""
    raise NotImplementedError("for compiled code")


@overload(_ordered, jit_options=_INLINED)
def _(x):
    if isinstance(x, types.Integer):
        return lambda x: np.int64(x)
    top = np.int64(2**31 - 1 if x == types.float32 else 2**63 - 1)

    def ordered(x):
        key = np.int64(to_ordered(x))
        key = np.int64(0) if key == -1 else key  # 0 with a sign is as large as without
        return top if x != x else key

    return ordered


def _sorted_rows(x, descending, out):
    rows, length = x.shape
    digits = -(-8 * x.itemsize // _DIGIT)
    size = np.int64(1) << _DIGIT
    keys, spare = np.empty(length, np.uint64), np.empty(length, np.uint64)
    order, other = np.empty(length, np.int32), np.empty(length, np.int32)
    counts = np.empty((digits, size), np.int32)
    low = np.uint64(1) << np.uint64(8 * x.itemsize - 1)
    mask = np.uint64(size - 1)
    for i in range(rows):
        counts[:] = 0
        for j in range(length):
            key = _ordered(x[i, j])
            if descending:
                key = ~key
            bits = np.uint64(key) + low
            if x.itemsize == 4:
                bits &= np.uint64(0xFFFFFFFF)
            keys[j], order[j] = bits, j
            for d in range(digits):
                counts[d, (bits >> np.uint64(d * _DIGIT)) & mask] += 1
        for d in range(digits):
            shift, count = np.uint64(d * _DIGIT), counts[d]
            if count[(keys[0] >> shift) & mask] == length:
                continue  # all have this digit
            place = np.int32(0)
            for c in range(size):
                many = count[c]
                count[c] = place
                place += many
            for j in range(length):
                digit = (keys[j] >> shift) & mask
                at = count[digit]
                count[digit] = at + 1
                spare[at], other[at] = keys[j], order[j]
            keys, spare = spare, keys
            order, other = other, order
        for j in range(length):
            out[i, j] = order[j]


_sort = shared("x", "out")(cached(njit(**_OPTIONS)(_sorted_rows)))


@cached
@njit(**_OPTIONS)
def _seen(seen, rows, columns):
    """Rows and columns of the ones among zeros, of which there is at least one."""
    n = 0
    for i in range(seen.shape[0]):
        for j in range(seen.shape[1]):
            rows[n], columns[n] = i, j  # which stays if it is seen, without a branch that the data decide
            n += seen[i, j]
            if n == rows.size:
                return
