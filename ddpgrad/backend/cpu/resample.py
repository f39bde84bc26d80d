"""Maps along one dimension that mix neighbours (`ops/layers/resample.py`), compiled for the CPU, float32 and float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .half import is_half, stored
from .threads import shared
from .vectormath import compiled_for, kernel

if TYPE_CHECKING:
    from ...ops.layers.resample import Bands

Array = np.ndarray

# With unsigned indices LLVM sees that a run is contiguous.
u = np.uint64


def resample(input: Array, dim: int, bands: Bands) -> Array:
    """The matrix `bands` applied to `input` along `dim`; elements of 16 bits where it only moves them."""
    moves = is_half(input.dtype) and bands.weight.shape[1] == 1 and bool((bands.weight == 1).all())
    if not moves and not compiled_for(input):
        return NotImplemented
    shape = (*input.shape[:dim], len(bands.start), *input.shape[dim + 1 :])
    out = np.empty(shape, input.dtype)
    x, y = stored(_three(input, dim)), stored(_three(out, dim))
    weight = bands.weight.astype(x.dtype)
    if x.shape[2] == weight.shape[1] == 1:
        _pick_rows(x[:, :, 0], bands.start, weight[:, 0], y[:, :, 0])
    elif x.shape[2] == 1:
        _mix_rows(x[:, :, 0], bands.start, bands.length, weight, y[:, :, 0])
    else:
        _mix(x, bands.start, bands.length, weight, y)
    return out


def resample_transposed(g: Array, dim: int, bands: Bands) -> Array:
    """The transposed matrix `bands` applied to `g` along `dim`."""
    if not compiled_for(g):
        return NotImplemented
    out = np.zeros((*g.shape[:dim], bands.size, *g.shape[dim + 1 :]), g.dtype)
    x, y = _three(g, dim), _three(out, dim)
    weight = bands.weight.astype(g.dtype)
    if x.shape[2] == weight.shape[1] == 1:
        _add_rows(x[:, :, 0], bands.start, weight[:, 0], y[:, :, 0])
    elif x.shape[2] == 1:
        _spread_rows(x[:, :, 0], bands.start, bands.length, weight, y[:, :, 0])
    else:
        _spread(x, bands.start, bands.length, weight, y)
    return out


def _three(x: Array, dim: int) -> Array:
    """`x` as (before, length, after) the dimension `dim`, C-contiguous."""
    shape = (math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :]))
    return np.ascontiguousarray(x).reshape(shape)


@shared("out", "x")
@kernel
def _mix(x, start, count, weight, out):
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            sink = out[n, i]
            w, source = weight[i, 0], x[n, start[i]]
            for k in range(u(sink.size)):
                sink[k] = w * source[k]
            for tap in range(1, count[i]):
                w, source = weight[i, tap], x[n, start[i] + tap]
                for k in range(u(sink.size)):
                    sink[k] += w * source[k]


@kernel
def _longest_run(start):
    """(first, end) of the longest part of `start` that counts up by one: what padding leaves as it is."""
    best, first = (0, 0), 0
    for i in range(1, start.size + 1):
        if i == start.size or start[i] != start[i - 1] + 1:
            if i - first > best[1] - best[0]:
                best = (first, i)
            first = i
    return best


@shared("out", "x")
@kernel
def _pick_rows(x, start, weight, out):
    first, end = _longest_run(start)
    for n in range(out.shape[0]):
        source, sink = x[n], out[n]
        for i in range(first):
            sink[i] = weight[i] * source[u(start[i])]
        if first < end:
            part, whole, scale = source[u(start[first]) :], sink[first:end], weight[first:end]
            for i in range(whole.size):
                whole[i] = scale[i] * part[i]
        for i in range(end, sink.size):
            sink[i] = weight[i] * source[u(start[i])]


@shared("g", "out")
@kernel
def _add_rows(g, start, weight, out):
    first, end = _longest_run(start)
    for n in range(g.shape[0]):
        source, sink = g[n], out[n]
        for i in range(first):
            sink[u(start[i])] += weight[i] * source[i]
        if first < end:
            part, whole, scale = sink[u(start[first]) :], source[first:end], weight[first:end]
            for i in range(whole.size):
                part[i] += scale[i] * whole[i]
        for i in range(end, source.size):
            sink[u(start[i])] += weight[i] * source[i]


@shared("out", "x")
@kernel
def _mix_rows(x, start, count, weight, out):
    for n in range(out.shape[0]):
        source, sink = x[n], out[n]
        for i in range(out.shape[1]):
            first = u(start[i])
            total = weight[i, 0] * source[first]
            for tap in range(1, count[i]):
                total += weight[i, tap] * source[first + u(tap)]
            sink[i] = total


@shared("g", "out")
@kernel
def _spread(g, start, count, weight, out):
    for n in range(g.shape[0]):
        for i in range(g.shape[1]):
            source = g[n, i]
            for tap in range(count[i]):
                w, sink = weight[i, tap], out[n, start[i] + tap]
                for k in range(u(source.size)):
                    sink[k] += w * source[k]


@shared("g", "out")
@kernel
def _spread_rows(g, start, count, weight, out):
    for n in range(g.shape[0]):
        source, sink = g[n], out[n]
        for i in range(g.shape[1]):
            first = u(start[i])
            for tap in range(count[i]):
                sink[first + u(tap)] += weight[i, tap] * source[i]
