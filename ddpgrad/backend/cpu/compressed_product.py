"""Compiled products of a matrix that is stored line by line with a dense one, float32 and float64."""

from __future__ import annotations

from functools import partial

import numpy as np

from .threads import in_parts
from .vectormath import compiled_for, kernel


def compressed_product(
    starts: np.ndarray, places: np.ndarray, values: np.ndarray, dense: np.ndarray, rows: int, by_row: bool
) -> np.ndarray:
    """(rows, M): the matrix of `values` (nnz,) @ dense (K, M). by_row: its lines are rows, and `places` (nnz,) columns.

    starts: (lines + 1,) where each line begins. `IndexError` for indices that were changed, by `.data` or NumPy, to others
    than the matrix has: nothing else has checked them since it was made.
    """
    if not compiled_for(values, dense) or starts.dtype != np.int64 or places.dtype != np.int64:
        return NotImplemented
    dense = np.ascontiguousarray(dense)
    out = np.empty((rows, dense.shape[1]), values.dtype)
    bad, work = np.full(1, -1), values.size * max(dense.shape[1], 1)
    if by_row:
        in_parts(partial(_by_row, starts, places, values, dense, out, bad), rows, work)
    else:
        in_parts(partial(_by_column, starts, places, values, dense, out, bad), dense.shape[1], work)
    if bad[0] >= 0:
        raise IndexError(
            f"the indices of a sparse matrix are not those of one: line {bad[0]} is out of range"
        )
    return out


@kernel
def _by_row(starts, places, values, dense, out, bad, first, end):
    """Rows from `first` to `end`; bad[0] becomes the number of one whose indices are out of range."""
    width = dense.shape[1]
    for line in range(first, end):
        begin, stop = starts[line], starts[line + 1]
        if begin < 0 or stop > values.size:
            bad[0] = line
            return
        sink = out[line]
        for j in range(width):
            sink[j] = 0
        for i in range(begin, stop):
            place = places[i]
            if place < 0 or place >= dense.shape[0]:
                bad[0] = line
                return
            if width == 1:  # the loop below would begin anew for each element
                sink[0] += values[i] * dense[place, 0]
            else:
                value, source = values[i], dense[place]
                for j in range(width):
                    sink[j] += value * source[j]


@kernel
def _by_column(starts, places, values, dense, out, bad, first, end):
    """Columns of the result from `first` to `end`, in the order of the stored elements."""
    for row in range(out.shape[0]):
        for j in range(first, end):
            out[row, j] = 0
    for line in range(dense.shape[0]):
        begin, stop = starts[line], starts[line + 1]
        if begin < 0 or stop > values.size:
            bad[0] = line
            return
        source = dense[line, first:end]
        for i in range(begin, stop):
            place, value = places[i], values[i]
            if place < 0 or place >= out.shape[0]:
                bad[0] = line
                return
            sink = out[place, first:end]
            for j in range(source.size):
                sink[j] += value * source[j]


def largest_product(
    starts: np.ndarray, places: np.ndarray, values: np.ndarray, dense: np.ndarray, sign: int
) -> tuple[np.ndarray, np.ndarray]:
    """(the largest of a row's stored elements times their rows of `dense` (K, M), (rows, M); which element gave it, int64).

    sign: -1 for the smallest. The first of equal ones, or the last NaN; 0 and -1 where a row has none. float32 and float64.
    """
    dense = np.ascontiguousarray(dense)
    shape = (len(starts) - 1, dense.shape[1])
    out, chosen, bad = np.zeros(shape, values.dtype), np.full(shape, -1), np.full(1, -1)
    in_parts(
        partial(_largest, starts, places, values, dense, sign, out, chosen, bad),
        shape[0],
        values.size * shape[1],
    )
    if bad[0] >= 0:
        raise IndexError(
            f"the indices of a sparse matrix are not those of one: line {bad[0]} is out of range"
        )
    return out, chosen


@kernel
def _largest(starts, places, values, dense, sign, out, chosen, bad, first, end):
    for line in range(first, end):
        begin, stop = starts[line], starts[line + 1]
        if begin < 0 or stop > values.size:
            bad[0] = line
            return
        for i in range(begin, stop):
            place, value = places[i], values[i]
            if place < 0 or place >= dense.shape[0]:
                bad[0] = line
                return
            for j in range(dense.shape[1]):
                product = value * dense[place, j]
                if i == begin or product * sign > out[line, j] * sign or product != product:
                    out[line, j] = product
                    chosen[line, j] = i
