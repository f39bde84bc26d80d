"""Products with the patches of images, which are read where they are: compiled for float32 and vectors of 512 or 256 bits.

The rows of a tile are positions of a result, or elements of a kernel. They lie anywhere in a padded copy of the input, and the
tables of `patches.py` say where. The other operand, a weight or a gradient, is packed into panels of two vectors; the last panel is
narrower if few columns are left. An element is summed in the order of the tables, whatever the number of threads.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from .register_tile import intrinsic, moved_block, register_tile
from .vectormath import _OPTIONS, compiled, processor_has

_WIDE = processor_has("avx512f")
AVAILABLE = _WIDE or processor_has("avx2", "fma")
# As many sums as the registers hold.
ROWS, LANES = (8, 16) if _WIDE else (4, 8)
COLUMNS = 2 * LANES
SUMMED = 1024  # positions that a gradient of the weight sums at once
_BLOCK = 8
_DEPTH = 1024  # of a panel, so that it stays in the second-level cache
CHUNK = 128  # positions whose results are kept before they are written
u = np.uint64  # of an index: it is not below 0


def tile_of(vectors: int, lanes: int, in_lanes: bool = False) -> Any:
    """`register_tile` of so many vectors, whose rows are found by tables."""
    vector = ir.VectorType(ir.FloatType(), lanes)

    def add(builder: Any, row: Any, columns: Any, sums: Any) -> Any:
        fused = intrinsic(builder, f"llvm.fma.v{lanes}f32", vector, [vector] * 3)
        return builder.call(fused, [row, columns, sums])

    return register_tile(ROWS, vectors, lanes, ir.FloatType(), add, True, in_lanes)


_tile_of_two, _tile_of_one, _tile_of_8 = tile_of(2, LANES), tile_of(1, LANES), tile_of(1, 8)
_transposed, _one = moved_block(_BLOCK, True), moved_block(1, False)


@njit(forceinline=True, **_OPTIONS)
def _width(columns):
    """Of the panel that holds so many columns."""
    return 8 if columns <= 8 else LANES if columns <= LANES else COLUMNS


def in_panels(columns: int) -> int:
    """Columns with those that fill the last panel."""
    left = columns % COLUMNS
    return columns - left + (_width.py_func(left) if left else 0)


@njit(forceinline=True, **_OPTIONS)
def _multiply(width, base, rows, elements, panel, out, stride, length, more):
    """Set a tile's rows of `width` numbers to patches times a panel, added to what they are if `more`; places are addresses."""
    if width == COLUMNS:
        _tile_of_two(base, rows, elements, panel, out, stride, length, more)
    elif width == LANES:
        _tile_of_one(base, rows, elements, panel, out, stride, length, more)
    else:
        _tile_of_8(base, rows, elements, panel, out, stride, length, more)


@njit(forceinline=True, **_OPTIONS)
def turn(source, pitch, high, wide, out, stride):
    """Copy a matrix (high, wide) to one (wide, high): addresses, and bytes from row to row.

    Numbers, not arrays: Numba takes seconds for views of each layout.
    """
    down, along = high - high % _BLOCK, wide - wide % _BLOCK
    for r in range(0, down, _BLOCK):
        for c in range(0, along, _BLOCK):
            _transposed(source + r * pitch + 4 * c, pitch, out + c * stride + 4 * r, stride)
    for c in range(wide):
        for r in range(down if c < along else 0, high):
            _one(source + r * pitch + 4 * c, pitch, out + c * stride + 4 * r, stride)


@njit(forceinline=True, **_OPTIONS)
def scatter(source, high, places, first, count, out, n, top):
    """Write each of `high` rows of source to a row of out[n] from `top` on, at these places: `count` from `first` on."""
    for c in range(high):
        row, sink = source[c], out[n, top + c]
        for k in range(u(count)):
            sink[u(places[u(first) + k])] = row[k]


@njit(forceinline=True, **_OPTIONS)
def fill(row, first, count, out, high):
    """Set the first `count` numbers of `high` rows of out to those of `row` from `first` on."""
    for i in range(high):
        sink = out[i]
        for k in range(u(count)):
            sink[k] = row[u(first) + k]


@njit(forceinline=True, **_OPTIONS)
def _pad(x, first, images, low, high, before, padded, buffer):
    """Channels low to high of `images` images of x (N, C, D, H, W) into buffer (images, channels, pitch), whose edges are 0."""
    depth, height, width = x.shape[2:]
    for n in range(images):
        for c in range(low, high):
            for d in range(depth):
                for y in range(height):
                    start = ((d + before[0]) * padded[1] + y + before[1]) * padded[2] + before[2]
                    sink = buffer[n, c, start : start + width]
                    source = x[first + n, c, d, y]
                    for k in range(width):
                        sink[k] = source[k]


def _pack(weight, out):
    """weight (groups, O, K) as panels of columns o, one after another."""
    groups, outputs, length = weight.shape
    at = 0
    for g in range(groups):
        for j in range(0, outputs, COLUMNS):
            count = min(COLUMNS, outputs - j)
            width = _width(count)
            if count < width:
                out[at : at + length * width] = np.float32(0)
            first = weight.ctypes.data + 4 * (g * outputs + j) * length
            turn(first, 4 * length, count, length, out.ctypes.data + 4 * at, 4 * width)
            at += length * width


def _pack_turned(weight, elements, out):
    """weight (groups, O, C, taps) as panels of columns c; the rows are those of each o and each of `elements`."""
    groups, outputs, columns = weight.shape[:3]
    at = 0
    for g in range(groups):
        for j in range(0, columns, COLUMNS):
            count = min(COLUMNS, columns - j)
            width = _width(count)
            for o in range(outputs):
                for tap in elements:
                    sink, source = out[at : at + width], weight[g, o, j : j + count, tap]
                    for c in range(count):
                        sink[c] = source[c]
                    for c in range(count, width):
                        sink[c] = np.float32(0)
                    at += width


def _unpack(total, out):
    """total (groups, K or more, O or more) as out (groups, O, K)."""
    for g in range(out.shape[0]):
        source, sink = total.ctypes.data + g * total.strides[0], out.ctypes.data + g * out.strides[0]
        turn(source, total.strides[1], out.shape[2], out.shape[1], sink, out.strides[1])


def _correlate(
    x,
    before,
    padded,
    buffer,
    rows,
    taps,
    places,
    parts,
    panels,
    bias,
    groups,
    out,
    first,
    end,
    low,
    high,
    slices,
):
    """out (N, O, plane) from x (N, C, D, H, W): of images `first` to `end`, slices `low` to `high` of so many."""
    outputs = out.shape[1] // groups
    across = panels.size // (groups * (parts[-1, 3] + parts[-1, 5]))
    between, plane = 4 * (x.shape[1] // groups) * buffer.shape[2], out.strides[1]
    scratch = np.zeros((CHUNK, COLUMNS), np.float32)
    turned = np.empty((COLUMNS, CHUNK), np.float32)
    for group in range(first, end, buffer.shape[0]):
        images = min(buffer.shape[0], end - group)
        _pad(x, group, images, np.intp(0), x.shape[1], before, padded, buffer)
        for g in range(groups):
            corner = buffer.ctypes.data + g * between
            for j in range(0, outputs, COLUMNS):
                wide = min(COLUMNS, outputs - j)
                width = _width(wide)
                top = g * outputs + j
                for f in range(parts.shape[0]):
                    row_at, tap_at, place_at, panel_at, positions, length = parts[f]
                    panel = panels.ctypes.data + 4 * (groups * across * panel_at + length * (g * across + j))
                    chunks = (images * positions + CHUNK - 1) // CHUNK
                    for chunk in range(chunks * low // slices, chunks * high // slices):
                        start = chunk * CHUNK
                        count = min(CHUNK, images * positions - start)
                        if bias.size:
                            fill(bias, top, wide, scratch, count)
                        for k in range(0, length, _DEPTH):
                            along = taps.ctypes.data + 8 * (tap_at + k)
                            for i in range(0, count, ROWS):
                                _multiply(
                                    width,
                                    corner,
                                    rows.ctypes.data + 8 * (row_at + start + i),
                                    along,
                                    panel + 4 * k * width,
                                    scratch.ctypes.data + 4 * i * COLUMNS,
                                    4 * COLUMNS,
                                    min(_DEPTH, length - k),
                                    k + bias.size,
                                )
                        done = 0
                        while done < count:
                            n, p = divmod(start + done, positions)
                            run = min(count - done, positions - p)
                            source = scratch.ctypes.data + 4 * done * COLUMNS
                            if places.size:
                                turn(source, 4 * COLUMNS, run, wide, turned.ctypes.data, 4 * CHUNK)
                                scatter(turned, wide, places, place_at + p, run, out, group + n, top)
                            else:
                                sink = out.ctypes.data + (group + n) * out.strides[0] + top * plane + 4 * p
                                turn(source, 4 * COLUMNS, run, wide, sink, plane)
                            done += run


def _correlate_weight(x, before, padded, buffer, rows, taps, positions, elements, g, groups, low, high, out):
    """The gradient of the weight, of input channels low to high: out (groups, K up to a multiple of 8, O up to that of panels).

    x (N, C, D, H, W), g (N, O, positions). Channels of other calls begin at another tile.
    """
    outputs, channels, pitch = g.shape[1] // groups, x.shape[1] // groups, buffer.shape[2]
    stride = 4 * out.shape[2]
    panel = np.empty(SUMMED * COLUMNS, np.float32)
    for group in range(0, x.shape[0], buffer.shape[0]):
        images = min(buffer.shape[0], x.shape[0] - group)
        _pad(x, group, images, low, high, before, padded, buffer)
        for h in range(groups):
            first, end = max(low, h * channels) - h * channels, min(high, (h + 1) * channels) - h * channels
            corner = buffer.ctypes.data + 4 * h * channels * pitch
            for start in range(0, images * positions, SUMMED) if first < end else range(0):
                depth = min(SUMMED, images * positions - start)
                for j in range(0, outputs, COLUMNS):
                    wide = min(COLUMNS, outputs - j)
                    width = _width(wide)
                    if wide < width:
                        panel[: depth * width] = np.float32(0)
                    done = 0
                    while done < depth:
                        n, p = divmod(start + done, positions)
                        run = min(depth - done, positions - p)
                        source = (
                            g.ctypes.data
                            + (group + n) * g.strides[0]
                            + (h * outputs + j) * g.strides[1]
                            + 4 * p
                        )
                        turn(source, g.strides[1], wide, run, panel.ctypes.data + 4 * done * width, 4 * width)
                        done += run
                    for k in range(first * elements, end * elements, ROWS):
                        _multiply(
                            width,
                            corner,
                            taps.ctypes.data + 8 * k,
                            rows.ctypes.data + 8 * start,
                            panel.ctypes.data,
                            out.ctypes.data + (h * out.shape[1] + k) * stride + 4 * j,
                            stride,
                            depth,
                            1,
                        )


def numbers(dimensions: int, readonly: bool = False) -> Any:
    return types.Array(types.float32, dimensions, "C", readonly=readonly)


INT, TABLE = types.intp, types.Array(types.int64, 1, "C")
TRIPLE = types.UniTuple(INT, 3)
_COPY = (numbers(5, True), TRIPLE, TRIPLE, numbers(3), TABLE, TABLE)


@functools.cache
def pack() -> Any:
    """`_pack`, loaded or compiled at the first call, as the others."""
    return compiled(_pack, numbers(3, True), numbers(1))


@functools.cache
def pack_turned() -> Any:
    """`_pack_turned`."""
    return compiled(_pack_turned, numbers(4, True), TABLE, numbers(1))


@functools.cache
def unpack() -> Any:
    """`_unpack`."""
    return compiled(_unpack, numbers(3), numbers(3))


@functools.cache
def correlate() -> Any:
    """`_correlate`."""
    parts = types.Array(types.int64, 2, "C")
    rest = (TABLE, parts, numbers(1), numbers(1, True), INT, numbers(3), *[INT] * 5)
    return compiled(_correlate, *_COPY, *rest)


@functools.cache
def correlate_weight() -> Any:
    """`_correlate_weight`."""
    return compiled(_correlate_weight, *_COPY, INT, INT, numbers(3, True), INT, INT, INT, numbers(3))
