"""Matrix products for the CPU that always reach BLAS, that of `nn.Linear` among them.

BLAS computes in the thread that calls it, and large products are shared by the threads of `threads.py`: its own go on turning
for milliseconds after a product, on cores that others could use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..elementary.linalg import matrices
from ..registry import Unsupported
from . import mkl
from .threads import PER_ELEMENT, in_parts, team, threads
from .vectormath import SMALL_PRODUCT, compiled_for

COMPLETE = ("matmul",)

# Multiplications above which BLAS uses more threads, and those with a vector.
_MANY, _MANY_OF_A_VECTOR = 1 << 18, 1 << 13
# Rows at whose multiples a product can be divided without other bits, where a part is no small product. Columns cannot be.
_UNIT, _LEAST = 96, 1 << 21

_any_matmul = matrices(np)["matmul"]


def matmul(input: np.ndarray, other: np.ndarray) -> np.ndarray:
    """input @ other. For two matrices `dot` reaches BLAS in a third of the time that numpy.matmul takes to."""
    if input.dtype is other.dtype and input.dtype.char in "fd":
        if input.ndim == other.ndim == 2:
            try:
                return dot(input, other)
            except Unsupported:  # with a sparse matrix behind it
                return other.swapaxes(0, 1).dot(input.T).T
        if input.ndim > other.ndim == 2:  # one product over all leading dimensions, as in `linear`
            *lead, columns = input.shape
            return dot(input.reshape(math.prod(lead), columns), other).reshape(*lead, other.shape[1])
        if other.ndim > 2 and input.ndim > 1:
            few = threads() == 1 and input.size * other.shape[-1] < mkl.LEAST
            return np.matmul(input, other) if few else by_blas(input, other)
    if input.dtype.itemsize == 2:
        out = _of_halves(input, other)
        if out is not None:
            return out
    return _any_matmul(input, other)


def linear(input: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """input (*, K) @ weight (N, K) transposed + bias (N,): a new array (*, N)."""
    if weight.ndim == 1:
        return NotImplemented
    if not compiled_for(input, weight) or (bias is not None and bias.dtype != input.dtype):
        out = _of_halves(input, weight.T, bias) if input.dtype.itemsize == 2 else None
        return NotImplemented if out is None else out
    # One product over all leading dimensions: numpy.matmul would make one per matrix of a stack.
    flat = input.ndim == 2
    rows = input if flat else input.reshape(math.prod(input.shape[:-1]), weight.shape[1])
    if weight.__class__ is np.ndarray:
        out = dot(rows, weight.T)
    else:  # rows of one rank, say: `dot` does not ask their class whether it may, `matmul` does
        out = by_blas(rows, weight.T)
    if bias is not None:
        out += bias
    return out if flat else out.reshape(*input.shape[:-1], weight.shape[0])


def weight_gradient(g: np.ndarray, input: np.ndarray, target: Any) -> np.ndarray:
    """g (M, N) transposed @ input (M, K): in the memory that `target` has for it, or a new array."""
    usual = g.__class__ is input.__class__ is np.ndarray and g.dtype is input.dtype and g.dtype.char in "fd"
    if not usual:
        return NotImplemented
    small = g.size * input.shape[1] < SMALL_PRODUCT  # copied sooner than asked for
    return g.T.dot(input) if small else dot(g.T, input, target.memory())


def dot(left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """left (M, K) @ right (K, N), of one type: by BLAS, or by `float_product` where that is done sooner. out: C-contiguous."""
    multiplications = left.size * right.shape[1]
    if multiplications >= SMALL_PRODUCT and left.dtype.char == "f" and right.__class__ is np.ndarray:
        from .float_product import product, worth_it

        if worth_it(left, right):
            return product(left, right, out)
    if multiplications >= mkl.LEAST and mkl.takes(left, right, out):
        return by_blas(left, right, out)
    if team.count != 1 and left.__class__ is right.__class__ is np.ndarray and _wants_threads(left, right):
        return _divided(left, right, out)
    return left.dot(right) if out is None else left.dot(right, out)  # a sparse matrix takes no `out`


def _of_halves(input: np.ndarray, other: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray | None:
    """The product (+ bias (N,)) of 16-bit floats, rounded once; None where it is done sooner in float32."""
    from .half import cast
    from .half_product import product, product_of_stacks, worth_it

    if input.ndim < 2 or other.ndim < 2 or not input.size or not other.size:
        return None
    if other.ndim == 2:
        rows = input.reshape(math.prod(input.shape[:-1]), input.shape[-1])
        if not worth_it(rows, other):
            return None
        wide = product(rows, other).reshape(*input.shape[:-1], other.shape[1])
    else:
        if not worth_it(input[(0,) * (input.ndim - 2)], other[(0,) * (other.ndim - 2)]):
            return None
        lead = np.broadcast_shapes(input.shape[:-2], other.shape[:-2])
        left, right = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (input, other))
        wide = product_of_stacks(left, right)
    if bias is not None:
        wide += bias.astype(np.float32)
    rounded = cast(wide, input.dtype)
    return wide.astype(input.dtype) if rounded is NotImplemented else rounded


def for_blas(x: np.ndarray) -> np.ndarray:
    """x, or a copy when the strides of its matrices keep numpy.matmul from BLAS (an expanded gradient, a slice)."""
    row, column = x.strides[-2:]
    rows, columns = x.shape[-2:]
    size = x.itemsize
    if (column == size and row >= columns * size) or (row == size and column >= rows * size):
        return x
    return np.ascontiguousarray(x)


def _wants_threads(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether BLAS would compute this product of matrices, or of stacks of them, by several threads."""
    multiplications = max(left.size * right.shape[-1], left.shape[-2] * right.size)
    if multiplications <= _MANY_OF_A_VECTOR or threads() == 1:
        return False
    return multiplications > _MANY or min(left.shape[-2], right.shape[-1]) == 1


def by_blas(left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """numpy.matmul of matrices, or of stacks of them, of one type."""
    multiply = mkl.product if mkl.takes(left, right, out) else np.matmul
    if _wants_threads(left, right):
        return _divided(left, right, out, multiply)
    return multiply(left, right, out)


def _divided(
    left: np.ndarray,
    right: np.ndarray,
    out: np.ndarray | None,
    multiply: Callable[..., np.ndarray] = np.matmul,
) -> np.ndarray:
    """`by_blas` of a large product. multiply(left, right, out): decided by the whole, so that parts have its bits."""
    if out is None:
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        out = np.empty((*lead, left.shape[-2], right.shape[-1]), left.dtype)
    rows, columns = out.shape[-2:]
    multiplications = out.size * left.shape[-1]
    unit = _UNIT * max(1, _LEAST // (_UNIT * left.shape[-1] * max(rows, columns)))
    if left.ndim == right.ndim > 2 and len(left) == len(right):
        work, length = partial(_stacks, multiply, left, right, out), len(left)
    elif rows >= 2 * unit:
        work, length = partial(_rows, multiply, left, right, out, unit), -(-rows // unit)
    else:
        work, length = partial(_columns, multiply, left, right, out, unit), -(-columns // unit)
    in_parts(work, length, multiplications // PER_ELEMENT, blas=True)
    return out


def _stacks(
    multiply: Any, left: np.ndarray, right: np.ndarray, out: np.ndarray, first: int, end: int
) -> None:
    multiply(left[first:end], right[first:end], out[first:end])


def _rows(
    multiply: Any, left: np.ndarray, right: np.ndarray, out: np.ndarray, unit: int, first: int, end: int
) -> None:
    own = slice(first * unit, end * unit)
    multiply(left[..., own, :], right, out[..., own, :])


def _columns(
    multiply: Any, left: np.ndarray, right: np.ndarray, out: np.ndarray, unit: int, first: int, end: int
) -> None:
    own = slice(first * unit, end * unit)
    multiply(left, right[..., own], out[..., own])
