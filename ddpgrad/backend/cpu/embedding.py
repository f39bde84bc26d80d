"""Compiled gradient of the embedding look-up, and products of rows, for the CPU, float32 and float64."""

from __future__ import annotations

from functools import partial

import numpy as np

from .threads import in_parts
from .vectormath import compiled_for, kernel


def embedding_backward(
    g: np.ndarray, indices: np.ndarray, num_embeddings: int, padding_idx: int | None
) -> np.ndarray:
    """Add row i of g (*, D) to row indices[i] of the result (num_embeddings, D), in the order of i.

    Rows that meet `padding_idx` are left out. `indices` is int64 (*), each in [0, num_embeddings): the forward look-up has
    checked that, but `.data` and NumPy can change them unseen. `IndexError` then.
    """
    if not compiled_for(g) or indices.dtype != np.int64:
        return NotImplemented
    width = g.shape[-1]
    out = np.zeros((num_embeddings, width), g.dtype)
    rows = np.ascontiguousarray(g).reshape(indices.size, width)
    flat = np.ascontiguousarray(indices).reshape(-1)
    bad = np.full(1, -1)
    skipped = -1 if padding_idx is None else padding_idx
    in_parts(partial(_add_rows, rows, flat, skipped, out, bad), width, rows.size)
    if bad[0] >= 0:
        raise IndexError(f"index {flat[bad[0]]} is out of bounds for a table of {num_embeddings} rows")
    return out


def row_products(table: np.ndarray, sums: np.ndarray, indices: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """(L,): row indices[i] of `table` (K, D) times the row of `sums` (bags, D) of the bag that i is in."""
    if not compiled_for(table, sums) or indices.dtype != np.int64:
        return NotImplemented
    out, bad = np.empty(indices.shape, table.dtype), np.full(1, -1)
    table, sums = np.ascontiguousarray(table), np.ascontiguousarray(sums)
    in_parts(
        partial(_multiply_rows, table, sums, indices, bounds, out, bad),
        len(sums),
        indices.size * sums.shape[1],
    )
    if bad[0] >= 0:
        raise IndexError(f"index {indices[bad[0]]} is out of bounds for a table of {len(table)} rows")
    return out


@kernel
def _multiply_rows(table, sums, indices, bounds, out, bad, first, end):
    """The products of bags `first` to `end`; bad[0] becomes the place of an index that is out of range."""
    for bag in range(first, end):
        row = sums[bag]
        for i in range(bounds[bag], bounds[bag + 1]):
            index = indices[i]
            if index < 0 or index >= table.shape[0]:
                bad[0] = i
                return
            source, total = table[index], out.dtype.type(0)
            for j in range(row.size):
                total += source[j] * row[j]
            out[i] = total


@kernel
def _add_rows(rows, indices, skipped, out, bad, first, end):
    """Add rows, columns from `first` to `end`, to out; bad[0] becomes the place of an index that is out of range."""
    for i in range(indices.size):
        index = indices[i]
        if index != skipped:
            if index < 0 or index >= out.shape[0]:
                bad[0] = i
                return
            source, sink = rows[i, first:end], out[index, first:end]
            for j in range(source.size):
                sink[j] += source[j]
