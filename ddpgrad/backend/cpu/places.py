"""Gathering from, and adding at, places of flattened images, compiled for the CPU, float32 and float64."""

from __future__ import annotations

import numpy as np

from .threads import shared
from .vectormath import compiled_for, kernel

Array = np.ndarray

# Unsigned, as indices cannot count from the end.
u = np.uint64


def take_places(input: Array, index: Array) -> Array:
    """`input` (N, C, S) at the places `index` (N, P): (N, C, P)."""
    if not compiled_for(input) or index.dtype != np.int64:
        return NotImplemented
    out = np.empty((*input.shape[:2], index.shape[1]), input.dtype)
    _take(np.ascontiguousarray(input), np.ascontiguousarray(index), out)
    return out


def add_places(g: Array, index: Array, size: int) -> Array:
    """Zeros (N, C, size) with `g` (N, C, P) added at the places `index` (N, P)."""
    if not compiled_for(g) or index.dtype != np.int64:
        return NotImplemented
    out = np.zeros((*g.shape[:2], size), g.dtype)
    _add(np.ascontiguousarray(g), np.ascontiguousarray(index), out)
    return out


@shared("x", "index", "out")
@kernel
def _take(x, index, out):
    for n in range(out.shape[0]):
        for c in range(out.shape[1]):
            source, sink, places = x[n, c], out[n, c], index[n]
            for k in range(places.size):
                sink[k] = source[u(places[k])]


@shared("g", "index", "out")
@kernel
def _add(g, index, out):
    for n in range(g.shape[0]):
        for c in range(g.shape[1]):
            source, sink, places = g[n, c], out[n, c], index[n]
            for k in range(places.size):
                sink[u(places[k])] += source[k]
