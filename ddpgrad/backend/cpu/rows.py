"""Slices that are added at places of neighbouring dimensions, compiled for the CPU: float32 and float64."""

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
    """`input` with `value` added at places of neighbouring dimensions, in their order; repeated places add up."""
    parts = index if index.__class__ is tuple else (index,)
    dim = sum(part.__class__ is slice and part == _ALL for part in parts)
    places = [part for part in parts[dim:] if part.__class__ is np.ndarray and part.dtype == np.int64]
    if (
        getattr(value, "size", 0) < _SMALL
        or not places
        or not dim + len(places) == len(parts) <= input.ndim
        or not compiled_for(input, value)
    ):
        return NotImplemented
    sizes, rest = input.shape[dim : dim + len(places)], input.shape[dim + len(places) :]
    flat, size = _among(places, sizes), math.prod(sizes)
    if flat is None or value.shape != (shape := input.shape[:dim] + flat.shape + rest):
        return NotImplemented  # NumPy repeats what has to be, or says what is wrong
    out = to_write(np, input)
    if not out.flags.c_contiguous:
        return NotImplemented
    outer, inner, flat = math.prod(shape[:dim]), math.prod(rest), flat.reshape(-1)
    source = np.ascontiguousarray(value).reshape(outer, flat.size, inner)
    if inner == 1:
        _add_elements(source[:, :, 0], flat, out.reshape(outer, size))
        return out
    in_parts(partial(_add, source, flat, out.reshape(outer, size, inner)), inner, source.size)
    return out


def _among(places: list[Array], sizes: tuple[int, ...]) -> Array | None:
    """Of places along neighbouring dimensions the one place among all of these; None where one is outside."""
    whole: Any = 0
    for place, size in zip(places, sizes, strict=True):
        if not place.size or (least := place.min()) < -size or place.max() >= size:
            return None
        if least < 0:
            place = np.where(place < 0, place + size, place)
        whole = place if len(places) == 1 else whole * size + place
    return whole


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
