"""Images and volumes read at the places of a grid, compiled for the CPU, float32 and float64 (`ops/layers/grid.py`)."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np

from .doublemath import floor, nearest
from .numbers import where
from .threads import shared
from .vectormath import compiled_for, kernel, part

Array = np.ndarray[Any, Any]

_BLOCK = 64  # places that are computed with at a time
_CUBIC = -0.75  # of `ops/layers/interpolation.py`


def grid_sampler(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    """`input` (N, C, *image) read at the places `grid` (N, *out, dims): (N, C, *out)."""
    if not compiled_for(input, grid):
        return NotImplemented
    out = np.empty((*input.shape[:2], *grid.shape[1:-1]), input.dtype)
    options = _sizes(input.shape[2:]), interpolation_mode, padding_mode, align_corners
    _sample(_images(input), _places(grid), _images(out), *options)
    return out


def grid_sampler_backward(
    g: Array,
    input: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    needs: tuple[bool, bool],
) -> tuple[Array | None, Array | None]:
    """The gradients of `grid_sampler` for its input and its grid; None for what is not needed."""
    if not compiled_for(g, input, grid):
        return NotImplemented
    g_input = np.zeros(input.shape if needs[0] else (len(input), 0, 0), g.dtype)
    g_grid = np.empty(grid.shape if needs[1] else (len(grid), 0, 0), g.dtype)
    options = _sizes(input.shape[2:]), interpolation_mode, padding_mode, align_corners, *needs
    _spread(_images(g), _images(input), _places(grid), _images(g_input), _places(g_grid), *options)
    return g_input if needs[0] else None, g_grid if needs[1] else None


def _images(x: Array) -> Array:
    """(N, C, S)."""
    n, channels, *image = x.shape
    return np.ascontiguousarray(x).reshape(n, channels, prod(image))


def _places(grid: Array) -> Array:
    """(N, P, dims)."""
    n, *out, dims = grid.shape
    return np.ascontiguousarray(grid).reshape(n, prod(out), dims)


@cache
def _sizes(image: tuple[int, ...]) -> Array:
    return np.array(image, np.int64)


def _as_written(function: Any) -> Any:
    """A kernel that rounds a place as PyTorch does: half a step decides which elements it mixes."""
    return kernel(function, set())


@part
def _inside(x, size, padding, corners):
    """`x` moved to where there are elements, and the derivative of that."""
    kind = type(x)
    one, low, span = kind(1), kind(0 if corners else -0.5), kind(size - 1 if corners else size)
    slope = one
    if padding == 2:
        below = x < low
        distance = where(below, low - x, x - low)
        flips = floor(distance / span)
        rest = distance - flips * span
        even = floor(flips / kind(2)) * kind(2) == flips
        mirrored = where(even, rest, span - rest) + low
        slope = where(below == even, -one, one)
        slope = where(span > 0, slope, 0)
        x = where(span > 0, mirrored, x * kind(0))
    top = kind(size - 1)
    within = (x > 0) & (x < top)
    return where(within, x, where(x > 0, top, 0)), where(within, slope, 0)


@part
def _cubic(t, i):
    """The weight of neighbour `i`, of which number 1 is `t` to the left, and its derivative by `t`."""
    kind = type(t)
    sign = kind(1 if i < 2 else -1)
    d = (t - kind(i - 1)) * sign
    a = kind(_CUBIC)
    if i == 1 or i == 2:
        return ((a + kind(2)) * d - (a + kind(3))) * d * d + kind(1), (
            kind(3) * (a + kind(2)) * d - kind(2) * (a + kind(3))
        ) * d * sign
    return ((d - kind(5)) * d + kind(8)) * d * a - kind(4) * a, ((kind(3) * d - kind(10)) * d + kind(8)) * (
        a * sign
    )


@part
def _along(places, dim, size, mode, padding, corners, at, weight, slope):
    """Fill at, weight and slope (taps, block) for one dimension of the places (block, dims); return how many taps there are."""
    kind = at.dtype.type
    count = len(places)
    half = kind(size - 1 if corners else size) / kind(2)
    for p in range(count):
        x = places[p, dim] + kind(1)
        at[0, p] = x * half if corners else (x * kind(size) - kind(1)) / kind(2)
        slope[0, p] = kind(1)
    if padding and mode != 2:
        for p in range(count):
            at[0, p], slope[0, p] = _inside(at[0, p], size, padding, corners)
    taps = 1
    if mode == 0:
        taps = 2
        for p in range(count):
            left = floor(at[0, p])
            right = at[0, p] - left
            at[0, p], at[1, p] = left, left + kind(1)
            weight[0, p], weight[1, p] = kind(1) - right, right
            slope[1, p] = slope[0, p] * half
            slope[0, p] = -slope[1, p]
    elif mode == 1:
        for p in range(count):
            at[0, p], weight[0, p], slope[0, p] = nearest(at[0, p]), kind(1), kind(0)
    else:
        taps = 4
        for p in range(count):
            left = floor(at[0, p])
            t = at[0, p] - left
            for i in range(4):
                at[i, p] = left + kind(i - 1)
                weight[i, p], s = _cubic(t, i)
                slope[i, p] = s * half
        if padding:
            for i in range(4):
                for p in range(count):
                    at[i, p], _ = _inside(at[i, p], size, padding, corners)
    return taps


@part
def _mixed(places, sizes, mode, padding, corners, at, weight, slope, index, whole):
    """Fill index (taps, block), -1 outside, and the weights `whole` of all elements that places mix; return their number and taps."""
    kind = at.dtype.type
    count, dims = len(places), len(sizes)
    total = 1
    taps = 1
    for axis in range(dims):
        taps = _along(
            places, dims - 1 - axis, sizes[axis], mode, padding, corners, at[axis], weight[axis], slope[axis]
        )
        total *= taps
    for k in range(total):
        row, product = index[k], whole[k]
        for p in range(count):
            row[p], product[p] = 0, kind(1)
        rest = total
        for axis in range(dims):
            rest //= taps
            tap, size = k // rest % taps, sizes[axis]
            here, w, top = at[axis, tap], weight[axis, tap], kind(size - 1)
            for p in range(count):
                there = (here[p] >= 0) & (here[p] <= top) & (row[p] >= 0)
                row[p] = row[p] * size + np.int64(where(there, here[p], 0)) if there else -1
                product[p] *= w[p]
    return total, taps


@shared("out", "x", "places")
@_as_written
def _sample(x, places, out, sizes, mode, padding, corners):
    kind = x.dtype.type
    at, weight, slope = (
        np.empty((3, 4, _BLOCK), x.dtype), np.empty((3, 4, _BLOCK), x.dtype), np.empty((3, 4, _BLOCK), x.dtype),
    )  # fmt: skip
    index, whole = np.empty((16, _BLOCK), np.int64), np.empty((16, _BLOCK), x.dtype)
    for n in range(out.shape[0]):
        for first in range(0, out.shape[2], _BLOCK):
            some = places[n, first : first + _BLOCK]
            total, _ = _mixed(some, sizes, mode, padding, corners, at, weight, slope, index, whole)
            for c in range(out.shape[1]):
                source, sink = x[n, c], out[n, c, first : first + _BLOCK]
                for p in range(len(some)):
                    sink[p] = kind(0)
                for k in range(total):
                    row, w = index[k], whole[k]
                    for p in range(len(some)):
                        met = source[row[p]] if row[p] >= 0 else kind(0)
                        sink[p] += w[p] * met


@shared("g", "x", "places", "g_input", "g_places")
@_as_written
def _spread(g, x, places, g_input, g_places, sizes, mode, padding, corners, for_input, for_places):
    kind = x.dtype.type
    at, weight, slope = (
        np.empty((3, 4, _BLOCK), x.dtype), np.empty((3, 4, _BLOCK), x.dtype), np.empty((3, 4, _BLOCK), x.dtype),
    )  # fmt: skip
    index, whole = np.empty((16, _BLOCK), np.int64), np.empty((16, _BLOCK), x.dtype)
    g_whole, product = np.empty((16, _BLOCK), x.dtype), np.empty(_BLOCK, x.dtype)
    dims = len(sizes)
    for n in range(g.shape[0]):
        for first in range(0, g.shape[2], _BLOCK):
            some = places[n, first : first + _BLOCK]
            count = len(some)
            total, taps = _mixed(some, sizes, mode, padding, corners, at, weight, slope, index, whole)
            g_whole[:total] = kind(0)
            for c in range(g.shape[1]):
                source = g[n, c, first : first + _BLOCK]
                if for_input:
                    sink = g_input[n, c]
                    for k in range(total):
                        row, w = index[k], whole[k]
                        for p in range(count):
                            if row[p] >= 0:
                                sink[row[p]] += w[p] * source[p]
                if for_places:
                    met = x[n, c]
                    for k in range(total):
                        row, sums = index[k], g_whole[k]
                        for p in range(count):
                            sums[p] += source[p] * (met[row[p]] if row[p] >= 0 else kind(0))
            if for_places:
                for axis in range(dims):
                    total_of = g_places[n, first : first + count, dims - 1 - axis]
                    for p in range(count):
                        total_of[p] = kind(0)
                    for k in range(total):
                        rest, share = total, g_whole[k]
                        for other in range(dims):
                            rest //= taps
                            factor = (slope if other == axis else weight)[other, k // rest % taps]
                            for p in range(count):
                                product[p] = factor[p] * (product[p] if other else share[p])
                        for p in range(count):
                            total_of[p] += product[p]
