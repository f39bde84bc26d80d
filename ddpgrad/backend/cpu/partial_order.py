"""The first few of an order: the largest or the smallest elements of rows, as C++'s standard library finds them.

Which of equal elements are chosen, and in which order, follows from the steps of a partial sort: parts around a median of
three, or a heap where few are asked for. So these are the steps of libstdc++, which PyTorch takes, without the limit on the
number of parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ..elementary.sorting import sorting
from .half import cast, is_half
from .kernel_cache import cached, worth_compiling
from .selection import _SMALL, _back, _handles, _ordered, _rows
from .threads import shared
from .vectormath import _OPTIONS

Array = np.ndarray[Any, Any]

_FEW = 64  # where the row has so many times k elements, a heap finds them
_SHORT = 16  # elements that are sorted by insertion

_portable = sorting(np)["topk_positions"]


def topk_positions(input: Array, k: int, dim: int, largest: bool, in_order: bool = True) -> Array:
    """Where the `k` largest (or smallest) elements along `dim` are, the most extreme first; nan is largest.

    Of equal ones those are chosen that PyTorch chooses. Without `in_order` they come as they are found.
    """
    numbers = cast(input, np.float32) if is_half(input.dtype) else input
    if not _handles(numbers) or not input.size or not k:
        return NotImplemented
    rows = _rows(numbers, dim)
    if rows.size < _SMALL and in_order and not worth_compiling(_first_of_rows, rows.size):
        out = _portable(rows, min(k + 1, rows.shape[1]), 1, largest)
        best = np.take_along_axis(rows, out, 1)
        earlier, later = best[:, :-1], best[:, 1:]
        if not ((later == earlier) | (later != later)).any():  # none are equal, and there is no nan
            return _back(np.ascontiguousarray(out[:, :k]), input, dim)
    out = np.empty((len(rows), k), np.int64)
    _first(rows, largest, in_order, out)
    return _back(out, input, dim)


@njit(**_OPTIONS)
def _first_places(keys, in_order, out):
    """The places of the largest of `keys` into `out`, as many as it has."""
    length, k = keys.size, out.size
    order = np.arange(length)
    if k * _FEW <= length:
        _heap(keys, order, k)
    else:
        first, end = 0, length
        while end - first > 3:
            cut = _parted(keys, order, first, end)
            if cut < k:
                first = cut
            else:
                end = cut
        _insert(keys, order, first, end)
        if in_order:
            _sort(keys, order, k - 1)
    out[:] = order[:k]


@njit(**_OPTIONS)
def _heap(keys, order, k):
    """Sort the k largest to the front by a heap of them, whose smallest is first."""
    for at in range((k - 2) // 2, -1, -1):
        _sift(keys, order, at, k, order[at])
    for at in range(k, order.size):
        if keys[order[at]] > keys[order[0]]:
            place, order[at] = order[at], order[0]
            _sift(keys, order, 0, k, place)
    for last in range(k - 1, 0, -1):
        place, order[last] = order[last], order[0]
        _sift(keys, order, 0, last, place)


@njit(**_OPTIONS)
def _sift(keys, order, hole, size, place):
    """Put `place` into the heap `order[:size]`: a hole goes down to a leaf, then `place` up from there."""
    top = hole
    while 2 * hole + 2 < size:
        child = 2 * hole + 2
        if keys[order[child]] > keys[order[child - 1]]:
            child -= 1
        order[hole] = order[child]
        hole = child
    if 2 * hole + 2 == size:
        order[hole] = order[size - 1]
        hole = size - 1
    while hole > top and keys[order[(hole - 1) // 2]] > keys[place]:
        order[hole] = order[(hole - 1) // 2]
        hole = (hole - 1) // 2
    order[hole] = place


@njit(**_OPTIONS)
def _parted(keys, order, first, end):
    """Part `order[first:end]` around a median of three, which goes to its front; where the second part begins."""
    a, b, c = first + 1, first + (end - first) // 2, end - 1
    x, y, z = keys[order[a]], keys[order[b]], keys[order[c]]
    if x > y:
        middle = b if y > z else c if x > z else a
    else:
        middle = a if x > z else c if y > z else b
    order[first], order[middle] = order[middle], order[first]
    pivot = keys[order[first]]
    low, high = first + 1, end
    while True:
        while keys[order[low]] > pivot:
            low += 1
        high -= 1
        while pivot > keys[order[high]]:
            high -= 1
        if low >= high:
            return low
        order[low], order[high] = order[high], order[low]
        low += 1


@njit(**_OPTIONS)
def _insert(keys, order, first, end):
    for at in range(first + 1, end):
        place = order[at]
        while at > first and keys[place] > keys[order[at - 1]]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place


@njit(**_OPTIONS)
def _sort(keys, order, end):
    parts = [(0, end)]
    while parts:
        first, last = parts.pop()
        while last - first > _SHORT:
            cut = _parted(keys, order, first, last)
            parts.append((cut, last))
            last = cut
    _insert(keys, order, 0, end)


@cached
@njit(**_OPTIONS)
def _first_of_rows(x, largest, in_order, out):
    keys = np.empty(x.shape[1], np.int64)
    for i in range(len(x)):
        for j in range(keys.size):
            key = _ordered(x[i, j])
            keys[j] = key if largest else ~key
        _first_places(keys, in_order, out[i])


_first = shared("x", "out")(_first_of_rows)
