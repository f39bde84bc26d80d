"""Compiled loops that only move elements: unsigned integers of their width stand for them."""

from __future__ import annotations

from .threads import shared
from .vectormath import kernel

_BLOCK = 32


@shared("out")
@kernel
def fill_vector(out, value):
    """Write one value to a vector."""
    for i in range(out.size):
        out[i] = value


@shared("rows", "out")
@kernel
def reverse_rows(rows, out):
    """Copy rows from their end to their start."""
    length = rows.shape[1]
    whole = length - length % _BLOCK
    for i in range(rows.shape[0]):
        row, sink = rows[i], out[i]
        for start in range(0, whole, _BLOCK):  # a length that the compiler knows becomes a vector
            block, turned = row[length - start - _BLOCK : length - start], sink[start : start + _BLOCK]
            for k in range(_BLOCK):
                turned[k] = block[_BLOCK - 1 - k]
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
            if lower:
                sink[:edge] = row[:edge]
                sink[edge:] = 0
            else:
                sink[:edge] = 0
                sink[edge:] = row[edge:]
