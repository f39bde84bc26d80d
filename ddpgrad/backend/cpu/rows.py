"""Slices that are added at places of one dimension, compiled for the CPU: float32 and float64."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ..overwriting import to_write
from .threads import in_parts
from .vectormath import compiled_for, kernel

Array = np.ndarray[Any, Any]

_SMALL = 1024  # elements that NumPy has added before compiled code has started
_ALL = slice(None)


def index_put_add(input: Array, index: Any, value: Any) -> Array:
    """`input` with `value` added at places of one dimension, in their order; repeated places add up."""
    before = index[:-1] if index.__class__ is tuple else ()
    places = index[-1] if index.__class__ is tuple and index else index
    if (
        getattr(value, "size", 0) < _SMALL
        or places.__class__ is not np.ndarray
        or places.dtype != np.int64
        or not compiled_for(input, value)
        or any(part.__class__ is not slice or part != _ALL for part in before)
    ):
        return NotImplemented
    dim = len(before)
    shape = input.shape[:dim] + places.shape + input.shape[dim + 1 :]
    size = input.shape[dim] if dim < input.ndim else 0
    if value.shape != shape or not size or (least := places.min()) < -size or places.max() >= size:
        return NotImplemented  # NumPy repeats what has to be, or says what is wrong
    out = to_write(np, input)
    if not out.flags.c_contiguous:
        return NotImplemented
    outer, inner = math.prod(shape[:dim]), math.prod(input.shape[dim + 1 :])
    flat = np.where(places < 0, places + size, places).reshape(-1) if least < 0 else places.reshape(-1)
    source = np.ascontiguousarray(value).reshape(outer, flat.size, inner)
    if inner == 1:
        _add_elements(source[:, :, 0], flat, out.reshape(outer, size))
        return out
    in_parts(partial(_add, source, flat, out.reshape(outer, size, inner)), inner, source.size)
    return out


@kernel
def _add_elements(source, places, out):
    for i in range(source.shape[0]):
        for j in range(places.size):
            out[i, places[j]] += source[i, j]


@kernel
def _add(source, places, out, first, end):
    for i in range(source.shape[0]):
        for j in range(places.size):
            row, sink = source[i, j, first:end], out[i, places[j], first:end]
            for k in range(row.size):
                sink[k] += row[k]
