"""Where convolution finds the patches of its input: tables for `direct.py`, of shapes only.

The matrix of patches is not written anywhere. Its element for a position of the result and an element of the kernel lies in a
padded copy of the input, at a place that is the sum of two numbers: one that the position has, and one that the element has.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

Array = np.ndarray
Ints = tuple[int, ...]
Triple = tuple[int, int, int]

_ROWS = 8  # of a tile: a table of positions is filled up to a multiple of it
_LINE = 16  # numbers in a line of the cache
# Positions that are worth a group of images.
ENOUGH = 256
_COPIED = 1 << 21  # numbers of a group at most, unless it is one image
# How many plans are kept, of so many positions, which have 8 or 16 bytes each.
_SMALL, _KEPT_SMALL = 1 << 14, 64
_LARGE, _KEPT_LARGE = 1 << 18, 8
_NONE = np.empty(0, np.int64)


class Options(NamedTuple):
    """Of a convolution of volumes."""

    stride: Triple
    padding: Triple
    dilation: Triple
    groups: int


class Part(NamedTuple):
    """Positions of the result that meet the same elements of the kernel: where its numbers begin in the tables of the plan.

    panels: where its packed weight begins, in numbers of each column. positions: of one image. length: of the sum.
    """

    rows: int
    taps: int
    places: int
    panels: int
    positions: int
    length: int


class Plan(NamedTuple):
    """What the kernels of `direct.py` go by.

    before, padded: zeros in front, and the size of a plane with all its zeros. pitch: numbers from plane to plane.
    images: how many make a group. rows: bytes to each position, of all images of a group. taps: bytes to each element of the
    kernel, of all channels of a group. places: where in a plane of the result each position belongs, if they do not follow one another.
    parts (*, 6): a `Part` in each row. elements: which elements of the kernel each part has.
    """

    before: Triple
    padded: Triple
    pitch: int
    images: int
    rows: Array
    taps: Array
    places: Array
    parts: Array
    elements: tuple[Array, ...]


def forward(shape: Ints, weight_shape: Ints, result: Ints, options: Options, enough: int = ENOUGH) -> Plan:
    """Of a convolution of x (N, C, D, H, W) with a weight (O, C/groups, *) for a result (N, O, *), as one part."""
    _check(shape, weight_shape, result, options)
    return _made_forward(math.prod(result[2:]))(
        shape[0], shape[1], weight_shape[1], shape[2:], weight_shape[2:], result[2:], options, enough
    )


def backward(
    g_shape: Ints, weight_shape: Ints, input_shape: Ints, options: Options, enough: int = ENOUGH
) -> Plan:
    """Of the gradient of a convolution's input, from g (N, O, *).

    Places of the input that are `stride` apart meet the same elements of the kernel: they are a part, and a convolution without stride.
    """
    _check(input_shape, weight_shape, g_shape, options)
    each = weight_shape[0] // options.groups
    return _made_backward(math.prod(input_shape[2:]))(
        g_shape[0], g_shape[1], each, g_shape[2:], weight_shape[2:], input_shape[2:], options, enough
    )


def _check(shape: Ints, weight_shape: Ints, result: Ints, options: Options) -> None:
    """Kernels read by addresses: images and channels have to be there. Places are inside by how plans are made."""
    outputs, channels = weight_shape[:2]
    if (
        shape[:2] != (result[0], channels * options.groups)
        or result[1] != outputs
        or outputs % options.groups
    ):
        raise ValueError(
            f"a convolution of {shape} with {weight_shape} in {options.groups} groups does not fit {result}"
        )


def _forward(
    images: int,
    planes: int,
    channels: int,
    size: Ints,
    kernel: Ints,
    result: Ints,
    options: Options,
    enough: int,
) -> Plan:
    stride, padding, dilation, _ = options
    padded = _triple(
        max(p + n, (r - 1) * s + d * (k - 1) + 1)
        for n, k, s, p, d, r in zip(size, kernel, stride, padding, dilation, result, strict=True)
    )
    starts = [np.arange(r) * s for r, s in zip(result, stride, strict=True)]
    shifts = [np.arange(k) * d for k, d in zip(kernel, dilation, strict=True)]
    pitch = _pitch(padded)
    count = _together(images, result, enough, planes * pitch)
    rows = _sums([np.arange(count) * (planes * pitch), _inside(starts, padded)])
    taps = _sums([np.arange(channels) * pitch, _inside(shifts, padded)])
    return _plan(padding, padded, pitch, count, [(rows, taps, _NONE, np.arange(math.prod(kernel)))])


def _backward(
    images: int,
    planes: int,
    channels: int,
    size: Ints,
    kernel: Ints,
    result: Ints,
    options: Options,
    enough: int,
) -> Plan:
    stride, padding, dilation, _ = options
    # For each dimension, and each place below the stride: (how many places, elements of the kernel, how far each reaches).
    phases = [
        [_phase(r, n, k, s, p, d) for r in range(min(s, n))]
        for n, k, s, p, d in zip(result, kernel, stride, padding, dilation, strict=True)
    ]
    before = _triple(max(0, *(-int(q.min(initial=0)) for _, _, q in dim), 0) for dim in phases)
    padded = _triple(
        b + max(n, *(m + int(q.max(initial=0)) for m, _, q in dim), 0)
        for b, n, dim in zip(before, size, phases, strict=True)
    )
    pitch = _pitch(padded)
    count = _together(images, size, enough, planes * pitch)
    parts = []
    for firsts in itertools.product(*(range(len(dim)) for dim in phases)):
        chosen = [dim[r] for dim, r in zip(phases, firsts, strict=True)]
        elements = _inside([taps for _, taps, _ in chosen], kernel)
        if not elements.size:
            continue
        starts = [np.arange(m) for m, _, _ in chosen]
        shifts = [q + b for (_, _, q), b in zip(chosen, before, strict=True)]
        rows = _sums([np.arange(count) * (planes * pitch), _inside(starts, padded)])
        taps = _sums([np.arange(channels) * pitch, _inside(shifts, padded)])
        along = [r + s * a for r, s, a in zip(firsts, stride, starts, strict=True)]
        places = _inside(along, result) if max(stride) > 1 else _NONE
        parts.append((rows, taps, places, elements))
    return _plan(before, padded, pitch, count, parts)


def _keeping(make: Callable[..., Plan]) -> Callable[[int], Callable[..., Plan]]:
    """The function of a number of positions that makes plans, or has them."""
    small: Callable[..., Plan] = functools.lru_cache(_KEPT_SMALL)(make)
    large: Callable[..., Plan] = functools.lru_cache(_KEPT_LARGE)(make)
    return lambda positions: small if positions <= _SMALL else large if positions <= _LARGE else make


_made_forward, _made_backward = _keeping(_forward), _keeping(_backward)


def _phase(
    first: int, length: int, kernel: int, stride: int, padding: int, dilation: int
) -> tuple[int, Array, Array]:
    taps = np.arange(kernel)
    taps = taps[(first + padding - dilation * taps) % stride == 0]
    return -(-(length - first) // stride), taps, (first + padding - dilation * taps) // stride


def _plan(
    before: Triple, padded: Triple, pitch: int, images: int, parts: list[tuple[Array, Array, Array, Array]]
) -> Plan:
    """Of parts (rows, taps, places, elements)."""
    rows, taps = ([_filled(part[i]) for part in parts] for i in range(2))
    places = [part[2] for part in parts]
    table = np.zeros((len(parts), 6), np.int64)
    at = Part(0, 0, 0, 0, 0, 0)
    for f, part in enumerate(parts):
        at = at._replace(positions=len(part[0]) // images, length=len(part[1]))
        table[f] = at
        at = Part(
            at.rows + len(rows[f]),
            at.taps + len(taps[f]),
            at.places + len(places[f]),
            at.panels + at.length,
            0,
            0,
        )
    joined = [np.concatenate(tables) if tables else np.empty(0, np.int64) for tables in (rows, taps, places)]
    return Plan(
        before,
        padded,
        pitch,
        images,
        joined[0] * 4,
        joined[1] * 4,
        joined[2],
        table,
        tuple([p[3] for p in parts]),
    )


def _inside(along: list[Array], size: Ints) -> Array:
    """Places in a plane of `size` of all points whose coordinates are one of each array."""
    return _sums([a * step for a, step in zip(along, _steps(size), strict=True)])


def _steps(size: Ints) -> Triple:
    return size[1] * size[2], size[2], 1


def _sums(numbers: list[Array]) -> Array:
    """All sums of one number of each array, the last changing first."""
    total = numbers[0]
    for more in numbers[1:]:
        total = np.add.outer(total, more).reshape(-1)
    return total.astype(np.int64, copy=False)


def _filled(table: Array) -> Array:
    """With its last number again, up to a multiple of a tile's rows."""
    return np.append(table, np.repeat(table[-1:], -len(table) % _ROWS))


def _pitch(padded: Triple) -> int:
    """An odd number of lines: planes that are a power of two apart would meet in few places of the cache."""
    lines = -(-padded[0] * padded[1] * padded[2] // _LINE)
    return (lines | 1) * _LINE


def _together(images: int, positions: Ints, enough: int, each: int) -> int:
    """How many images make a group, if the copy of one has `each` numbers."""
    return max(1, min(images, enough // math.prod(positions), _COPIED // each))


def _triple(numbers: Iterable[int]) -> Triple:
    a, b, c = numbers
    return a, b, c


def plain(x: Array) -> Array:
    """x as compiled products read it: C-contiguous, and at addresses of whole numbers."""
    return np.ascontiguousarray(x) if x.flags.aligned else x.copy()
