"""LU factors and triangular solves of many small matrices, compiled for the CPU: float32 and float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from .threads import shared
from .vectormath import kernel

Array = np.ndarray[Any, Any]


def lu_factor(A: Array) -> tuple[Array, Array, Array]:
    """L and U in one matrix, LAPACK's pivots, and the rows of A in the order of L @ U, of each of A (*, m, n)."""
    *lead, m, n = A.shape
    out = np.array(A, order="C")
    pivots, rows = np.empty((*lead, min(m, n)), np.int32), np.empty((*lead, m), np.int64)
    _factor(out.reshape(-1, m, n), pivots.reshape(-1, min(m, n)), rows.reshape(-1, m))
    return out, pivots, rows


@shared("out", "pivots", "rows")
@kernel
def _factor(out, pivots, rows):
    count, m, n = out.shape
    for i in range(count):
        matrix, order = out[i], rows[i]
        for row in range(m):
            order[row] = row
        for k in range(min(m, n)):
            best, largest = k, abs(matrix[k, k])
            for row in range(k + 1, m):
                size = abs(matrix[row, k])
                if size > largest:
                    best, largest = row, size
            pivots[i, k] = best + 1
            if best != k:
                order[k], order[best] = order[best], order[k]
                for column in range(n):
                    matrix[k, column], matrix[best, column] = matrix[best, column], matrix[k, column]
            head = matrix[k, k]
            for row in range(k + 1, m):
                if head != 0:
                    matrix[row, k] /= head
                factor = matrix[row, k]
                for column in range(k + 1, n):
                    matrix[row, column] -= factor * matrix[k, column]


def solve_triangular(A: Array, B: Array, upper: bool, unitriangular: bool) -> Array:
    """X with A @ X = B, of each of A (*, n, n) and B (*, n, k), where only one triangle of A is read."""
    n, k = B.shape[-2:]
    out = np.array(B, order="C")
    _substitute(np.ascontiguousarray(A).reshape(-1, n, n), out.reshape(-1, n, k), upper, unitriangular)
    return out


@shared("matrices", "out")
@kernel
def _substitute(matrices, out, upper, unitriangular):
    count, n, _ = matrices.shape
    for i in range(count):
        matrix, x = matrices[i], out[i]
        for step in range(n):
            row = n - 1 - step if upper else step
            target = x[row]
            for known in range(row + 1, n) if upper else range(row):
                factor, source = matrix[row, known], x[known]
                for column in range(target.size):
                    target[column] -= factor * source[column]
            if not unitriangular:
                head = matrix[row, row]
                for column in range(target.size):
                    target[column] /= head
