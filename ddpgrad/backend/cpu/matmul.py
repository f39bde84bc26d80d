"""Matrix products for the CPU that always reach BLAS: the affine map of `nn.Linear`."""

from __future__ import annotations

import math

import numpy as np

from .vectormath import compiled_for


def linear(input: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """input (*, K) @ weight (N, K) transposed + bias (N,): a new array (*, N)."""
    if not compiled_for(input, weight) or (bias is not None and bias.dtype != input.dtype):
        return NotImplemented
    # One product over all leading dimensions: numpy.matmul would make one per matrix of a stack.
    rows = input.reshape(math.prod(input.shape[:-1]), weight.shape[1])
    out = np.matmul(for_blas(rows), for_blas(weight).T)
    if bias is not None:
        out += bias
    return out.reshape(*input.shape[:-1], weight.shape[0])


def for_blas(x: np.ndarray) -> np.ndarray:
    """x, or a copy when the strides of its matrices keep numpy.matmul from BLAS (an expanded gradient, a slice)."""
    row, column = x.strides[-2:]
    rows, columns = x.shape[-2:]
    size = x.itemsize
    if (column == size and row >= columns * size) or (row == size and column >= rows * size):
        return x
    return np.ascontiguousarray(x)
