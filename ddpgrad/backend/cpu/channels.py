"""Convolution of float32 in which every channel is a group of its own, as many channels at once as a vector has numbers.

Channels are brought side by side in the padded copy of their planes. A result is then a sum over the kernel of vectors, which lie where
`patches.py` says, and so is the gradient of a weight over positions. Parts of the channels are done by a thread each. No array may be empty.
"""

from __future__ import annotations

import functools
import math
from functools import partial
from typing import Any

import numpy as np
from numba import njit, types

from . import patches
from .patch_product import (
    AVAILABLE,
    CHUNK,
    INT,
    LANES,
    ROWS,
    TABLE,
    TRIPLE,
    fill,
    numbers,
    scatter,
    tile_of,
    turn,
)
from .patches import Options, Plan
from .threads import PER_ELEMENT, in_parts
from .vectormath import _OPTIONS, compiled

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

_ROW = 4 * LANES  # bytes of one number of all lanes

_tile = tile_of(1, LANES, in_lanes=True)


def pays(weight_shape: Ints, groups: int) -> bool:
    """True for a weight (O, 1, *) of as many groups as there are channels, and as outputs, that fill half a vector."""
    return AVAILABLE and weight_shape[1] == 1 and weight_shape[0] == groups >= LANES // 2


@njit(forceinline=True, **_OPTIONS)
def _pad(x, size, before, padded, lines, buffer):
    """Planes x (channels, D * H * W) into buffer (pitch, LANES), whose edges are 0, by way of `lines`."""
    depth, height, width = size
    many = max(1, lines.shape[0] // width)
    for first in range(0, depth * height, many):
        end = min(depth * height, first + many)
        source, sink = x.ctypes.data + 4 * first * width, lines.ctypes.data
        turn(source, x.strides[0], x.shape[0], (end - first) * width, sink, _ROW)
        for line in range(first, end):
            d, y = line // height + before[0], line % height + before[1]
            start = (d * padded[1] + y) * padded[2] + before[2]
            row, inside = (
                lines.reshape(-1)[(line - first) * width * LANES :],
                buffer.reshape(-1)[start * LANES :],
            )
            for k in range(width * LANES):
                inside[k] = row[k]


def _correlate(x, size, before, padded, pitch, rows, taps, places, parts, weight, bias, out, low, high):
    """Blocks `low` to `high` of channels of out (N, C, plane) from x (N, C, *), by weight (blocks, taps, LANES)."""
    buffer, lines = np.zeros((pitch, LANES), np.float32), np.empty((max(CHUNK, size[2]), LANES), np.float32)
    scratch = np.empty((CHUNK, LANES), np.float32)
    turned = np.empty((LANES, CHUNK), np.float32)
    for n in range(x.shape[0]):
        for block in range(low, high):
            c = block * LANES
            wide = min(LANES, x.shape[1] - c)
            _pad(x[n, c : c + wide], size, before, padded, lines, buffer)
            for f in range(parts.shape[0]):
                row_at, tap_at, place_at, panel_at, positions, length = parts[f]
                panel = weight.ctypes.data + (block * weight.shape[1] + panel_at) * _ROW
                for start in range(0, positions, CHUNK):
                    count = min(CHUNK, positions - start)
                    if bias.size:
                        fill(bias, c, wide, scratch, count)
                    for i in range(0, count, ROWS):
                        _tile(
                            buffer.ctypes.data,
                            rows.ctypes.data + 8 * (row_at + start + i),
                            taps.ctypes.data + 8 * tap_at,
                            panel,
                            scratch.ctypes.data + i * _ROW,
                            _ROW,
                            length,
                            bias.size,
                        )
                    if places.size:
                        turn(scratch.ctypes.data, _ROW, count, wide, turned.ctypes.data, 4 * CHUNK)
                        scatter(turned, wide, places, place_at + start, count, out, n, c)
                    else:
                        sink = out.ctypes.data + n * out.strides[0] + c * out.strides[1] + 4 * start
                        turn(scratch.ctypes.data, _ROW, count, wide, sink, out.strides[1])


def _correlate_weight(x, size, before, padded, pitch, rows, taps, g, out, low, high):
    """The gradient of the weight, out (blocks, taps up to a multiple of a tile's rows, LANES), of blocks `low` to `high`."""
    buffer, lines = np.zeros((pitch, LANES), np.float32), np.empty((max(CHUNK, size[2]), LANES), np.float32)
    panel = np.zeros((CHUNK, LANES), np.float32)
    for n in range(x.shape[0]):
        for block in range(low, high):
            c = block * LANES
            wide = min(LANES, x.shape[1] - c)
            _pad(x[n, c : c + wide], size, before, padded, lines, buffer)
            for start in range(0, g.shape[2], CHUNK):
                count = min(CHUNK, g.shape[2] - start)
                source = g.ctypes.data + n * g.strides[0] + c * g.strides[1] + 4 * start
                turn(source, g.strides[1], wide, count, panel.ctypes.data, _ROW)
                for k in range(0, out.shape[1], ROWS):
                    _tile(
                        buffer.ctypes.data,
                        taps.ctypes.data + 8 * k,
                        rows.ctypes.data + 8 * start,
                        panel.ctypes.data,
                        out.ctypes.data + (block * out.shape[1] + k) * _ROW,
                        _ROW,
                        count,
                        1,
                    )


_COPY = (numbers(3, True), TRIPLE, TRIPLE, TRIPLE, INT, TABLE, TABLE)


@functools.cache
def _correlation() -> Any:
    parts = types.Array(types.int64, 2, "C")
    return compiled(_correlate, *_COPY, TABLE, parts, numbers(3), numbers(1, True), numbers(3), INT, INT)


@functools.cache
def _correlation_weight() -> Any:
    return compiled(_correlate_weight, *_COPY, numbers(3, True), numbers(3), INT, INT)


def convolve(input: Array, weight: Array, bias: Array | None, shape: Ints, options: Options) -> Array:
    """Cross-correlation of input (N, C, D, H, W) with weight (C, 1, *kernel) plus bias (C,), of that shape."""
    plan = patches.forward(input.shape, weight.shape, shape, options, 0)  # one image at a time
    return _run(input, plan, weight, bias, np.empty(shape, np.float32))


def convolve_input(g: Array, weight: Array, input_shape: Ints, options: Options) -> Array:
    """The gradient of `convolve` for its input, from g (N, C, *)."""
    plan = patches.backward(g.shape, weight.shape, input_shape, options, 0)  # one image at a time
    # Places that no element of the kernel meets have no gradient.
    covered = int(plan.parts[:, 4].sum()) == math.prod(input_shape[2:])
    out = np.empty(input_shape, np.float32) if covered else np.zeros(input_shape, np.float32)
    return _run(g, plan, weight, None, out)


def convolve_weight(g: Array, input: Array, weight_shape: Ints, options: Options) -> Array:
    """The gradient of `convolve` for its weight, from g (N, C, *)."""
    plan = patches.forward(input.shape, weight_shape, g.shape, options, 0)
    channels, elements = weight_shape[0], math.prod(weight_shape[2:])
    blocks = -(-channels // LANES)
    total = np.zeros((blocks, -(-elements // ROWS) * ROWS, LANES), np.float32)
    by_position = patches.plain(g).reshape(*g.shape[:2], -1)
    kernel = _correlation_weight()
    work = partial(kernel, *_source(input, plan), by_position, total)
    in_parts(work, blocks, by_position.size * elements // PER_ELEMENT)
    out = total[:, :elements].swapaxes(1, 2).reshape(blocks * LANES, elements)
    return np.ascontiguousarray(out[:channels]).reshape(weight_shape)


def _run(x: Array, plan: Plan, weight: Array, bias: Array | None, out: Array) -> Array:
    if not len(plan.parts):
        return out
    blocks = -(-len(weight) // LANES)
    elements = np.concatenate(plan.elements)
    lanes = np.zeros((blocks * LANES, len(elements)), np.float32)
    lanes[: len(weight)] = weight.reshape(len(weight), -1)[:, elements]
    by_block = np.ascontiguousarray(lanes.reshape(blocks, LANES, -1).swapaxes(1, 2))
    offset = np.empty(0, np.float32) if bias is None else patches.plain(bias)
    planes = out.reshape(*out.shape[:2], -1)
    kernel = _correlation()
    work = partial(kernel, *_source(x, plan), plan.places, plan.parts, by_block, offset, planes)
    in_parts(work, blocks, len(x) * by_block.size * int(plan.parts[:, 4].max()) // PER_ELEMENT)
    return out


def _source(x: Array, plan: Plan) -> tuple[Any, ...]:
    planes = patches.plain(x).reshape(*x.shape[:2], -1)
    return planes, x.shape[2:], plan.before, plan.padded, plan.pitch, plan.rows * LANES, plan.taps * LANES
