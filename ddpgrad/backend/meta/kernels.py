"""Kernels whose portable form reads elements, or takes a step in Python for each of many rows or draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .array import MetaArray, Shape
from .library import real_of


def lu_factor(A: MetaArray, pivot: bool) -> tuple[MetaArray, MetaArray, MetaArray]:
    """L and U in one matrix, LAPACK's pivots, and the rows of A in the order of L @ U."""
    *lead, m, n = A.shape
    return A.copy(), MetaArray((*lead, min(m, n)), np.int32), MetaArray((*lead, m), np.int64)


def matrix_exp(A: MetaArray) -> MetaArray:
    """The exponential of every matrix."""
    return A.copy()


def lstsq_solution(A: MetaArray, B: MetaArray, rcond: float) -> tuple[MetaArray, MetaArray, MetaArray]:
    """Least-squares solutions, ranks and singular values."""
    lead = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    m, n = A.shape[-2:]
    values = MetaArray((*lead, min(m, n)), real_of(A.dtype))
    return MetaArray((*lead, n, B.shape[-1]), A.dtype), MetaArray(lead, np.int64), values


def logcumsumexp(input: MetaArray, dim: int) -> MetaArray:
    """Of the shape of its input, as every running reduction."""
    return input.copy()


def running_position(input: MetaArray, dim: int, largest: bool) -> MetaArray:
    """One position for each element."""
    return MetaArray(input.shape, np.int64)


def ldl_factor(A: MetaArray, hermitian: bool) -> tuple[MetaArray, MetaArray, MetaArray]:
    """L and D in one matrix, LAPACK's pivots, and which pivots are zero."""
    return A.copy(), MetaArray(A.shape[:-1], np.int32), MetaArray(A.shape[:-2], np.int32)


def ldl_solve(LD: MetaArray, pivots: MetaArray, B: MetaArray, hermitian: bool) -> MetaArray:
    """One column for each right-hand side."""
    lead = np.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    return MetaArray((*lead, *B.shape[-2:]), B.dtype)


def cofactors(A: MetaArray) -> MetaArray:
    """One cofactor for each element."""
    return A.copy()


def dropout(input: MetaArray, p: float = 0.5, source: Any = None) -> tuple[MetaArray, MetaArray]:
    """The result, and the mask."""
    return input.copy(), MetaArray(input.shape, np.uint8)


def solve_triangular(A: MetaArray, B: MetaArray, upper: bool, unitriangular: bool = False) -> MetaArray:
    """One column for each right-hand side."""
    return ldl_solve(A, A, B, upper)


def convolution_input(g: MetaArray, weight: MetaArray, input_shape: Shape, *options: Any) -> MetaArray:
    """As large as the input."""
    return MetaArray(input_shape, g.dtype)


def convolution_weight(g: MetaArray, input: MetaArray, weight_shape: Shape, *options: Any) -> MetaArray:
    """As large as the weight."""
    return MetaArray(weight_shape, g.dtype)


def col2im(g: MetaArray, size: Shape, kernel_size: Shape, *options: Shape) -> MetaArray:
    """Images of `size`, one channel for so many rows as the kernel has places."""
    return MetaArray((g.shape[0], g.shape[1] // math.prod(kernel_size), *size), g.dtype)


def compressed_product(
    starts: MetaArray, places: MetaArray, values: MetaArray, dense: MetaArray, rows: int, by_row: bool
) -> MetaArray:
    """A matrix of `rows` and the columns of `dense`."""
    return MetaArray((rows, dense.shape[1]), dense.dtype)


def row_products(table: MetaArray, sums: MetaArray, indices: MetaArray, bounds: MetaArray) -> MetaArray:
    """One product for each index."""
    return MetaArray(indices.shape, table.dtype)
