"""Matrix products of bfloat16 by the processor's own instruction, which adds up pairs of products in float32.

NumPy's BLAS has none, and converting to float32 costs half of the speed and the conversion. Operands are packed into
panels as the instruction takes them (pairs of neighbours along the summed dimension side by side), and tiles of
8 x 48 results stay in registers, after Goto and van de Geijn, https://doi.org/10.1145/1356052.1356053. Results are summed
in the order of that dimension, whatever their number of rows and columns. Like the instruction, this takes
subnormal numbers for 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types

from ..dtype import bfloat16
from .threads import in_parts
from .vectormath import _OPTIONS, cached, instruction

Array = np.ndarray[Any, Any]

AVAILABLE = bool(binding.get_host_cpu_features().get("avx512bf16", False))
_ROWS, _LANES, _VECTORS = 8, 16, 3
_COLUMNS = _LANES * _VECTORS
_DEPTH = 1024  # pairs along the summed dimension in a panel, that it stays in the second-level cache
_WORTH_IT = 1 << 18  # multiplications below which converting is done sooner
_WORTH_SHARING = 1 << 26  # and below which one thread is
_NO_NUMBERS, _NO_PAIRS = np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32)


class _BFloat(ir.Type):
    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


@instruction
def _tile(typingctx: Any, rows: Any, columns: Any, out: Any, pairs: Any, stride: Any) -> Any:
    """Add the product of two panels to a tile of float32: addresses, the number of pairs, bytes from row to row."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, number = ir.IntType(64), ir.IntType(32)
        floats, words = ir.VectorType(ir.FloatType(), _LANES), ir.VectorType(number, _LANES)
        halves = ir.VectorType(_BFloat(), 2 * _LANES)
        rows, columns, out, pairs, stride = arguments
        kind = ir.FunctionType(floats, [floats, halves, halves])
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        dot = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)

        def load(kind: Any, base: Any, offset: Any) -> Any:
            value = builder.load(builder.inttoptr(builder.add(base, offset), kind.as_pointer()))
            value.align = 4
            return value

        places = [
            builder.add(builder.mul(stride, word(r)), word(4 * _LANES * v))
            for r in range(_ROWS)
            for v in range(_VECTORS)
        ]
        start = [load(floats, out, place) for place in places]
        before = builder.block
        loop, after = builder.append_basic_block("pairs"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        i = builder.phi(word)
        sums = [builder.phi(floats) for _ in places]
        at_row, at_column = builder.mul(i, word(4 * _ROWS)), builder.mul(i, word(4 * _COLUMNS))
        right = [
            builder.bitcast(load(words, columns, builder.add(at_column, word(4 * _LANES * v))), halves)
            for v in range(_VECTORS)
        ]
        new = []
        for r in range(_ROWS):
            pair = load(number, rows, builder.add(at_row, word(4 * r)))
            one = builder.insert_element(ir.Constant(words, ir.Undefined), pair, number(0))
            mask = ir.Constant(words, [0] * _LANES)
            left = builder.bitcast(
                builder.shuffle_vector(one, ir.Constant(words, ir.Undefined), mask), halves
            )
            new += [builder.call(dot, [sums[r * _VECTORS + v], left, right[v]]) for v in range(_VECTORS)]
        following = builder.add(i, word(1))
        builder.cbranch(builder.icmp_signed("<", following, pairs), loop, after)
        i.add_incoming(word(0), before)
        i.add_incoming(following, loop)
        for phi, first, last in zip(sums, start, new, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(last, loop)
        builder.position_at_end(after)
        for place, value in zip(places, new, strict=True):
            store = builder.store(value, builder.inttoptr(builder.add(out, place), floats.as_pointer()))
            store.align = 4
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), build


@njit(forceinline=True, **_OPTIONS)
def _pack(source, width, start, first, depth, out):
    """Pack columns of source (K, *) into panels (pairs, width), the first of which is panel `start` of all."""
    length, count = source.shape
    for panel in range(out.shape[0]):
        left = (start + panel) * width
        inside = min(width, count - left)
        for p in range(depth):
            k = first + 2 * p
            row, low = out[panel, p], source[k]
            high = source[min(k + 1, length - 1)]
            shift = np.uint32(16) if k + 1 < length else np.uint32(31)
            kept = np.uint32(0xFFFF0000) if k + 1 < length else np.uint32(0)
            if inside == width:
                for j in range(width):
                    row[j] = np.uint32(low[left + j]) | ((np.uint32(high[left + j]) << shift) & kept)
            else:
                row[:] = np.uint32(0)
                for j in range(inside):
                    row[j] = np.uint32(low[left + j]) | ((np.uint32(high[left + j]) << shift) & kept)


@njit(forceinline=True, **_OPTIONS)
def _pack_pairs(source, width, start, first, depth, out):
    """`_pack` of source (*, K / 2), whose elements are pairs."""
    for panel in range(out.shape[0]):
        left = (start + panel) * width
        inside = min(width, source.shape[0] - left)
        if inside < width:
            out[panel] = np.uint32(0)
        for p in range(0, depth, _LANES):  # a line of the cache at a time
            for j in range(inside):
                line = source[left + j, first // 2 + p : first // 2 + min(p + _LANES, depth)]
                for q in range(line.size):
                    out[panel, p + q, j] = line[q]


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
                _tile(left[i].ctypes.data, right[j].ctypes.data, place, depth, columns * 4)
                continue
            high, wide = min(_ROWS, rows - top), min(_COLUMNS, columns - edge)
            scratch[:high, :wide] = out[top : top + high, edge : edge + wide]
            _tile(left[i].ctypes.data, right[j].ctypes.data, scratch.ctypes.data, depth, _COLUMNS * 4)
            out[top : top + high, edge : edge + wide] = scratch[:high, :wide]


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
    right = np.empty((end - start, depth, _COLUMNS), np.uint32)
    if paired.size:
        _pack_pairs(paired, _COLUMNS, start, first, depth, right)
    else:
        _pack(source, _COLUMNS, start, first, depth, right)
    _panels(left, right, start, depth, out)


def product(left: Array, right: Array) -> Array:
    """left (M, K) @ right (K, N), bfloat16 of any strides, as float32 (M, N)."""
    rows, length, columns = *left.shape, right.shape[1]
    out = np.zeros((rows, columns), np.float32)
    along, across = _forms(left.T), _forms(right)
    spread = in_parts if rows * length * columns >= _WORTH_SHARING else _alone
    for first in range(0, length, 2 * _DEPTH):
        depth = min(_DEPTH, (length - first + 1) // 2)
        packed = np.empty((-(-rows // _ROWS), depth, _ROWS), np.uint32)
        _pack_rows(*along, 0, first, depth, packed)
        spread(partial(_part, packed, across, first, depth, out), -(-columns // _COLUMNS))
    return out


def _part(packed: Array, across: Any, first: int, depth: int, out: Array, start: int, end: int) -> None:
    _multiply(packed, *across, start, end, first, depth, out)


def _forms(source: Array) -> tuple[Array, Array]:
    """source (K, *) as rows of numbers, and as columns of pairs (*, K / 2), one of them empty: as its memory runs."""
    along = source.T
    if along.flags.c_contiguous and source.shape[0] % 2 == 0:
        return _NO_NUMBERS, along.view(np.uint32)
    return np.ascontiguousarray(source).view(np.uint16), _NO_PAIRS


def worth_it(left: Array, right: Array) -> bool:
    """Whether `product` of these two matrices takes less time than that of their float32."""
    return (
        AVAILABLE
        and left.dtype == right.dtype == bfloat16.numpy
        and left.shape[0] * left.shape[1] * right.shape[1] >= _WORTH_IT
    )


def _alone(work: Callable[[int, int], Any], length: int) -> None:
    work(0, length)
