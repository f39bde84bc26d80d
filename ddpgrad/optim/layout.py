"""The layout of arrays in memory: which are neighbours, and many tensors in one flat array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.elementary.shape import address_of, part
from ..backend.registry import backend_for
from ..core.tensor import Tensor

Array = Any


def joined(arrays: Sequence[Array], places: Sequence[int]) -> Array | None:
    """One flat view in which each array starts at its place, counted in elements; None if they do not lie so."""
    first = arrays[0]
    base, dtype = first.base, first.dtype
    if base is None or not base.flags.c_contiguous:
        return None
    start = address_of(first)
    for array, place in zip(arrays, places, strict=True):
        if array.base is not base or array.dtype != dtype or not array.flags.c_contiguous:
            return None
        if address_of(array) != start + place * dtype.itemsize:
            return None
    offset = start - address_of(base)
    size = (places[-1] + arrays[-1].size) * dtype.itemsize
    return base.reshape(-1).view(np.uint8)[offset : offset + size].view(dtype)


def lay_flat(tensors: Sequence[Tensor], places: Sequence[int]) -> Array:
    """Make the tensors views of one flat array, each at its place; of the one that they are in, if they fill it."""
    arrays = [t._array for t in tensors]
    # In a gap of an array that they are in already, another tensor may live.
    gapless = sum(array.size for array in arrays) == places[-1] + arrays[-1].size
    flat = joined(arrays, places) if gapless else None
    if flat is None:
        flat = backend_for(arrays[0]).new_zeros(arrays[0], (places[-1] + arrays[-1].size,))
        for tensor, array, place in zip(tensors, arrays, places, strict=True):
            memory = flat[place : place + array.size].reshape(array.shape)
            # An array that knows more than its elements goes on knowing it.
            tensor._array = array.placed_at(memory) if hasattr(array, "placed_at") else memory
            tensor._array[...] = array
        # Each tensor is complete in a storage of its own, as programs find that save what shares a storage once.
        starts = [place * flat.itemsize for place in places]
        part(flat, starts, [start + array.nbytes for start, array in zip(starts, arrays, strict=True)])
    return flat


def tied(tensors: Sequence[Tensor]) -> set[Tensor]:
    """Those that share memory with another of them, or occur twice: they must not be parted."""
    spans = sorted(((address_of(t._array), t._array.nbytes, t) for t in tensors), key=lambda span: span[:2])
    found: set[Tensor] = set()
    end, last = -1, None
    for start, size, tensor in spans:
        if last is not None and start < end:
            found |= {last, tensor}
        if start + size > end:
            end, last = start + size, tensor
    return found


def real(array: Array) -> Array:
    """Complex numbers as pairs of real ones, which optimizers treat independently."""
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array
