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


def mix_places(input: Array, weight: Array, index: Array) -> Array:
    """`input` (N, C, S) at the places `index` (N, K, P) times `weight`, summed over K: (N, C, P)."""
    if not compiled_for(input, weight) or index.dtype != np.int64:
        return NotImplemented
    out = np.zeros((*input.shape[:2], index.shape[2]), input.dtype)
    _mix(*map(np.ascontiguousarray, (input, weight, index)), out)
    return out


def mix_places_input_backward(g: Array, weight: Array, index: Array, size: int) -> Array:
    """The gradient of `mix_places` for its input, of `size` places, from g (N, C, P)."""
    if not compiled_for(g, weight) or index.dtype != np.int64:
        return NotImplemented
    out = np.zeros((*g.shape[:2], size), g.dtype)
    _mix_input(*map(np.ascontiguousarray, (g, weight, index)), out)
    return out


def mix_places_weight_backward(g: Array, input: Array, index: Array) -> Array:
    """The gradient of `mix_places` for its weight."""
    if not compiled_for(g, input) or index.dtype != np.int64:
        return NotImplemented
    out = np.zeros(index.shape, g.dtype)
    _mix_weight(*map(np.ascontiguousarray, (g, input, index)), out)
    return out


@shared("x", "weight", "index", "out")
@kernel
def _mix(x, weight, index, out):
    for n in range(out.shape[0]):
        for c in range(out.shape[1]):
            source, sink = x[n, c], out[n, c]
            for k in range(index.shape[1]):
                places, w = index[n, k], weight[n, k]
                for p in range(places.size):
                    sink[p] += w[p] * source[u(places[p])]


@shared("g", "weight", "index", "out")
@kernel
def _mix_input(g, weight, index, out):
    for n in range(g.shape[0]):
        for c in range(g.shape[1]):
            source, sink = g[n, c], out[n, c]
            for k in range(index.shape[1]):
                places, w = index[n, k], weight[n, k]
                for p in range(places.size):
                    sink[u(places[p])] += w[p] * source[p]


@shared("g", "x", "index", "out")
@kernel
def _mix_weight(g, x, index, out):
    for n in range(g.shape[0]):
        for k in range(index.shape[1]):
            places, sink = index[n, k], out[n, k]
            for c in range(g.shape[1]):
                source, met = g[n, c], x[n, c]
                for p in range(places.size):
                    sink[p] += source[p] * met[u(places[p])]


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
