"""Matrix products of bfloat16 by the processor's own instruction, which adds up pairs of products in float32.

MKL, where it is installed, has tiles of them (`mkl.py`). NumPy's BLAS has none, and converting to float32 costs half of the speed and the conversion. Operands are packed into
panels as the instruction takes them (pairs of neighbours along the summed dimension side by side), and tiles of
8 x 48 results stay in registers (`register_tile.py`). Results are summed in the order of that dimension, whatever their number
of rows and columns. Like the instruction, this takes subnormal numbers for 0.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from ..dtype import bfloat16
from . import mkl
from .kernel_cache import cached
from .matmul import by_blas
from .register_tile import intrinsic, moved_block, register_tile
from .threads import PER_ELEMENT, in_parts
from .vectormath import _OPTIONS, copy_matrix, instruction, processor_has

Array = np.ndarray[Any, Any]

AVAILABLE = processor_has("avx512bf16")
_ROWS, _LANES, _VECTORS = 8, 16, 3
_FEW = 2
_COLUMNS = _LANES * _VECTORS
_DEPTH = 1024  # pairs along the summed dimension in a panel, that it stays in the second-level cache
_WORTH_IT = 1 << 18  # multiplications below which converting is done sooner


class _BFloat(ir.Type):
    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def _add_pairs(builder: Any, row: Any, columns: Any, sums: Any) -> Any:
    floats, halves = ir.VectorType(ir.FloatType(), _LANES), ir.VectorType(_BFloat(), 2 * _LANES)
    dot = intrinsic(builder, "llvm.x86.avx512bf16.dpbf16ps.512", floats, [floats, halves, halves])
    return builder.call(dot, [sums, builder.bitcast(row, halves), builder.bitcast(columns, halves)])


@instruction
def _pair(typingctx: Any, low: Any, high: Any, paired: Any) -> Any:
    """Two numbers of 16 bits in 32, the second of which is 0 where it is not `paired`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = ir.IntType(32)
        first, second = (builder.zext(x, bits) for x in arguments[:2])
        kept = builder.select(arguments[2], builder.shl(second, bits(16)), bits(0))
        return builder.or_(first, kept)

    return types.uint32(types.uint16, types.uint16, types.boolean), build


_tile = register_tile(_ROWS, _VECTORS, _LANES, ir.IntType(32), _add_pairs)
_few_rows = register_tile(
    _FEW, _VECTORS, _LANES, ir.IntType(32), _add_pairs
)  # of a tile that is mostly empty
_turned = moved_block(_ROWS, True)  # pairs have 32 bits


@njit(forceinline=True, **_OPTIONS)
def _pack(source, width, start, first, depth, out):
    """Pack columns of source (K, *) into panels (pairs, width), the first of which is panel `start` of all."""
    length, count = source.shape
    for panel in range(out.shape[0]):
        left = (start + panel) * width
        inside = min(width, count - left)
        for p in range(depth):
            k = first + 2 * p
            row, low = out[panel, p], source[k, left : left + inside]
            high, paired = source[min(k + 1, length - 1), left : left + inside], k + 1 < length
            if inside == width:
                for j in range(width):
                    row[j] = _pair(low[j], high[j], paired)
            else:
                row[:] = np.uint32(0)
                for j in range(inside):
                    row[j] = _pair(low[j], high[j], paired)


@njit(forceinline=True, **_OPTIONS)
def _pack_pairs(source, width, start, first, depth, out):
    """`_pack` of source (*, K / 2), whose elements are pairs."""
    for panel in range(out.shape[0]):
        left = (start + panel) * width
        inside = min(width, source.shape[0] - left)
        if inside < width:
            out[panel] = np.uint32(0)
        blocks = depth - depth % _ROWS, inside - inside % _ROWS
        down, along = source.strides[0], 4 * width
        corner, to = source.ctypes.data + left * down + 2 * first, out[panel].ctypes.data
        for j in range(0, blocks[1], _ROWS):
            for p in range(0, blocks[0], _ROWS):
                _turned(corner + j * down + 4 * p, down, to + p * along + 4 * j, along)
        for j in range(inside):
            for p in range(blocks[0] if j < blocks[1] else 0, depth):
                out[panel, p, j] = source[left + j, first // 2 + p]


@njit(**_OPTIONS)
def _panels(left, right, start, depth, out):
    """Add the product of packed panels, the right ones being start… of all, to out (M, N)."""
    rows, columns = out.shape
    scratch = np.empty((_ROWS, _COLUMNS), np.float32)
    for j in range(right.shape[0]):
        for i in range(left.shape[0]):
            top, edge = i * _ROWS, (start + j) * _COLUMNS
            if top + _ROWS <= rows and edge + _COLUMNS <= columns:
                place = out.ctypes.data + (top * columns + edge) * 4
                _tile(left[i].ctypes.data, 4, 4 * _ROWS, right[j].ctypes.data, place, 4 * columns, depth, 1)
                continue
            high, wide = min(_ROWS, rows - top), min(_COLUMNS, columns - edge)
            corner = out[top : top + high, edge : edge + wide]
            copy_matrix(corner, scratch[:high, :wide])
            sums, along = scratch.ctypes.data, 4 * _ROWS
            if high <= _FEW:
                _few_rows(left[i].ctypes.data, 4, along, right[j].ctypes.data, sums, 4 * _COLUMNS, depth, 1)
            else:
                _tile(left[i].ctypes.data, 4, along, right[j].ctypes.data, sums, 4 * _COLUMNS, depth, 1)
            copy_matrix(scratch[:high, :wide], corner)


@cached
@njit(**_OPTIONS)
def _pack_rows(source, paired, start, first, depth, out):
    if paired.size:
        _pack_pairs(paired, _ROWS, start, first, depth, out)
    else:
        _pack(source, _ROWS, start, first, depth, out)


@cached
@njit(**_OPTIONS)
def _multiply(left, source, paired, start, end, first, depth, out):
    """Add the product of packed rows and of the panels start… of columns, which are packed here, to out (M, N)."""
    right = np.empty((1, depth, _COLUMNS), np.uint32)
    for panel in range(start, end):
        if paired.size:
            _pack_pairs(paired, _COLUMNS, panel, first, depth, right)
        else:
            _pack(source, _COLUMNS, panel, first, depth, right)
        _panels(left, right, panel, depth, out)


def product(left: Array, right: Array) -> Array:
    """left (M, K) @ right (K, N), bfloat16 of any strides, as float32 (M, N)."""
    rows, (length, columns) = left.shape[0], right.shape
    if left.shape[1] != length:
        raise ValueError(f"a product of {left.shape} and {right.shape} does not fit")
    if mkl.takes(left, right):
        return by_blas(left, right, np.empty((rows, columns), np.float32))
    out = np.zeros((rows, columns), np.float32)
    along, across = _forms(left.T), _forms(right)
    for first in range(0, length, 2 * _DEPTH):
        depth = min(_DEPTH, (length - first + 1) // 2)
        packed = np.empty((-(-rows // _ROWS), depth, _ROWS), np.uint32)
        _pack_rows(*along, 0, first, depth, packed)
        work = partial(_part, packed, across, first, depth, out)
        in_parts(work, -(-columns // _COLUMNS), rows * length * columns // PER_ELEMENT)
    return out


def _part(packed: Array, across: Any, first: int, depth: int, out: Array, start: int, end: int) -> None:
    _multiply(packed, *across, start, end, first, depth, out)


@cached
@njit(**_OPTIONS)
def _multiply_stack(rows, paired_rows, columns, paired_columns, out, start, end):
    """`product` of the matrices start… of stacks, whose forms are given, to out (*, M, N)."""
    high, wide = out.shape[1:]
    length = 2 * paired_rows.shape[2] if paired_rows.size else rows.shape[1]
    most = min(_DEPTH, (length + 1) // 2)
    left = np.empty((-(-high // _ROWS), most, _ROWS), np.uint32)
    right = np.empty((-(-wide // _COLUMNS), most, _COLUMNS), np.uint32)
    for i in range(start, end):
        out[i] = np.float32(0)
        for first in range(0, length, 2 * _DEPTH):
            depth = min(_DEPTH, (length - first + 1) // 2)
            if paired_rows.size:
                _pack_pairs(paired_rows[i], _ROWS, 0, first, depth, left)
            else:
                _pack(rows[i], _ROWS, 0, first, depth, left)
            if paired_columns.size:
                _pack_pairs(paired_columns[i], _COLUMNS, 0, first, depth, right)
            else:
                _pack(columns[i], _COLUMNS, 0, first, depth, right)
            _panels(left, right, 0, depth, out[i])


def product_of_stacks(left: Array, right: Array) -> Array:
    """`product` of each of left (*, M, K) with the one of right (*, K, N)."""
    lead, (rows, length), columns = left.shape[:-2], left.shape[-2:], right.shape[-1]
    if mkl.takes(left, right):
        return by_blas(left, right, np.empty((*lead, rows, columns), np.float32))
    out = np.empty((math.prod(lead), rows, columns), np.float32)
    stacks = [x.reshape(-1, *x.shape[-2:]) for x in (left.swapaxes(-1, -2), right)]
    work = partial(_multiply_stack, *_forms(stacks[0]), *_forms(stacks[1]), out)
    in_parts(work, len(out), out.size * length // PER_ELEMENT)
    return out.reshape(*lead, rows, columns)


def _forms(source: Array) -> tuple[Array, Array]:
    """source (…, K, *) as rows of numbers, and as columns of pairs (…, *, K / 2), one of them empty: as its memory runs."""
    along, none = source.swapaxes(-1, -2), (0,) * source.ndim
    if along.flags.c_contiguous and source.shape[-2] % 2 == 0:
        return np.empty(none, np.uint16), along.view(np.uint32)
    return np.ascontiguousarray(source).view(np.uint16), np.empty(none, np.uint32)


def worth_it(left: Array, right: Array) -> bool:
    """Whether `product` of these two matrices takes less time than that of their float32."""
    return (
        AVAILABLE
        and left.shape[1] == right.shape[0]  # NumPy refuses others
        and left.dtype == right.dtype == bfloat16.numpy
        and left.shape[0] * left.shape[1] * right.shape[1] >= _WORTH_IT
    )
