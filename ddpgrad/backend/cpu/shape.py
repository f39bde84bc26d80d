"""Shapes for the CPU: views and copies that NumPy makes slowly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Elements from which a program that repeats rows gets loops for them, if it has one thread: they take some time to load.
_REPEATED = 1 << 16
# Numbers from which a copy that a compiled kernel turns is done sooner.
_MANY = 4096


def flip(input: Array, dims: tuple[int, ...]) -> Array:
    """A copy in the order of the dimensions, those of `dims` backwards."""
    ndim = input.ndim
    flipped = {d % ndim for d in dims} if ndim else set()
    if input.size < _MANY or ndim - 1 not in flipped or not input.flags.c_contiguous or input.itemsize > 8:
        return NotImplemented
    from .moves import reverse_rows

    rest = tuple(flipped - {ndim - 1})
    rows = np.flip(input, rest).reshape(-1, input.shape[-1]) if rest else input.reshape(-1, input.shape[-1])
    out, bits = np.empty(input.shape, input.dtype), np.dtype(f"u{input.itemsize}")
    reverse_rows(rows.view(bits), out.reshape(rows.shape).view(bits))
    return out


def tril(input: Array, diagonal: int = 0) -> Array:
    """The lower triangles of matrices, and 0 above."""
    return _triangle(input, diagonal, True)


def triu(input: Array, diagonal: int = 0) -> Array:
    """The upper triangles of matrices, and 0 below."""
    return _triangle(input, diagonal, False)


def _triangle(input: Array, diagonal: int, lower: bool) -> Array:
    if input.size < _MANY or not input.flags.c_contiguous or input.itemsize > 8:
        return NotImplemented
    from .moves import triangles

    out, bits = np.empty(input.shape, input.dtype), np.dtype(f"u{input.itemsize}")
    matrices = input.view(bits).reshape(-1, *input.shape[-2:])
    triangles(matrices, diagonal, lower, out.view(bits).reshape(matrices.shape))
    return out


def sum_to(input: Array, shape: Sequence[int]) -> Array:
    """The first gradient of what was repeated, which is left to NumPy, says that the program repeats rows."""
    if input.size >= _REPEATED:
        from .repeated_rows import install

        install()
    return NotImplemented


def expand(input: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """`input` with dimensions of length 1 stretched to `shape`: ten times as fast as numpy.broadcast_to."""
    if not input.flags.c_contiguous or input.dtype.char not in "fd" or not input.size:
        return NotImplemented
    lead = len(shape) - input.ndim
    strides = [0] * lead
    for have, wanted, stride in zip(input.shape, shape[lead:], input.strides, strict=True):
        strides.append(stride if have == wanted else 0)
    # A buffer must be contiguous and of a type that Python knows, hence the test above.
    return np.ndarray(shape, input.dtype, input, 0, strides)


def to_contiguous(input: np.ndarray) -> np.ndarray:
    """A copy in the order of the dimensions of float32 matrices whose memory runs along their columns."""
    if input.size < _MANY or input.dtype.char != "f":
        return NotImplemented
    from .moves import turn_back, turned

    if (columns := turned(input)) is None:
        return NotImplemented
    out = np.empty(input.shape, np.float32)
    turn_back(columns, out)
    return out
