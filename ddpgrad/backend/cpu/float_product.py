"""Matrix products of float32 on processors with vectors of 512 bits, and where BLAS would pack one matrix again and again.

Operands are packed into panels, 8 rows and 32 columns wide, and tiles of 8 x 32 results stay in registers
(`register_tile.py`). NumPy's BLAS has kernels for such vectors as well, but not on each processor, and small products
spend their time in its packing. An element is summed in the order of the summed dimension, whatever the number of rows, columns
and threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from threadpoolctl import threadpool_info

from . import mkl
from .matmul import by_blas
from .register_tile import intrinsic, moved_block, register_tile
from .threads import PER_ELEMENT, in_parts, threads
from .vectormath import _OPTIONS, SMALL_PRODUCT, compiled, copy_matrix, processor_has

Array = np.ndarray[Any, Any]

AVAILABLE = processor_has("avx512f")
_ROWS, _LANES, _VECTORS = 8, 16, 2
_COLUMNS = _LANES * _VECTORS
TILE = _ROWS  # rows, of which a product is the same wherever the tile lies
_DEPTH = 1024  # of a panel, so that it stays in the second-level cache
_HEIGHT = 4096  # rows that are packed at once
# BLAS has finished sooner where most of a panel would be empty, and where few rows share the cost of packing the columns. Columns
# that lie along K are turned on the way, which costs BLAS more than it costs here.
_FEW_COLUMNS = 24
_FEW_ROWS, _FEW_ROWS_TO_TURN = 24, 8
_FEW_PRODUCTS = 1 << 21  # multiplications, where BLAS turns nothing
_LARGE = 256  # rows, columns and terms of a product whose packing costs BLAS nothing


def _add(builder: Any, row: Any, columns: Any, sums: Any) -> Any:
    vector = ir.VectorType(ir.FloatType(), _LANES)
    return builder.call(
        intrinsic(builder, f"llvm.fma.v{_LANES}f32", vector, [vector] * 3), [row, columns, sums]
    )


_tile, _half_tile, _line = (register_tile(n, _VECTORS, _LANES, ir.FloatType(), _add) for n in (_ROWS, 4, 1))
_copied, _transposed = moved_block(_LANES, False), moved_block(_LANES, True)
_copied_rows = moved_block(_ROWS, False)


@njit(forceinline=True, **_OPTIONS)
def _pack(source, first, depth, left, count, width, out):
    """Columns left to left + count of source (K, *), rows `first` to first + depth, to `out` (depth, width), the rest zeros."""
    down, along = source.strides
    if count < width:
        out[:depth] = np.float32(0)
    done = 0
    if count % _LANES == 0 and (along == 4 or down == 4):
        done = depth - depth % _LANES
        corner, to = source.ctypes.data + first * down + left * along, out.ctypes.data
        if along == 4:
            for k in range(0, done, _LANES):
                for j in range(0, count, _LANES):
                    _copied(corner + k * down + 4 * j, down, to + 4 * (k * width + j), 4 * width)
        else:
            for j in range(0, count, _LANES):
                for k in range(0, done, _LANES):
                    _transposed(corner + 4 * k + j * along, along, to + 4 * (k * width + j), 4 * width)
    for start in range(done, depth, _LANES):  # a line of the cache at a time
        end = min(depth, start + _LANES)
        for j in range(count):
            for k in range(start, end):
                out[k, j] = source[first + k, left + j]


def _pack_rows(left, first, depth, start, out):
    """left (stack, M, K), of M the part from panel `start` on and of K that from `first`, as panels (stack, *, depth, 8)."""
    whole = left.shape[1] // _ROWS - start if left.strides[1] == 4 else 0
    for s in range(left.shape[0]):
        along, corner = left.strides[2], left.ctypes.data + s * left.strides[0] + 4 * start * _ROWS
        for k in range(0, depth - depth % _ROWS, _ROWS):  # a page is looked up once for all panels
            place, to = corner + (first + k) * along, out.ctypes.data + s * out.strides[0] + 4 * k * _ROWS
            for i in range(whole):
                _copied_rows(place + 4 * i * _ROWS, along, to + i * out.strides[1], 4 * _ROWS)
        for k in range(depth - depth % _ROWS, depth):
            for i in range(whole):
                for j in range(_ROWS):
                    out[s, i, k, j] = left[s, (start + i) * _ROWS + j, first + k]
        for i in range(whole, out.shape[1]):
            top = (start + i) * _ROWS
            _pack(left[s].T, first, depth, top, min(_ROWS, left.shape[1] - top), _ROWS, out[s, i])


def _pack_columns(right, out):
    """right (K, N) as panels (N / 32, K, 32)."""
    for j in range(out.shape[0]):
        _pack(right, 0, right.shape[0], j * _COLUMNS, _COLUMNS, _COLUMNS, out[j])


def _multiply(left, panels, right, first, depth, start, end, out):
    """Panels `start` to `end` of the columns of right (stack, K, N), against all rows, to out (stack, M, N).

    left (stack or 1, M, K) is read as it is, save for its last rows, which are in `panels`, and so is a right matrix that is one
    panel. From first = 0 on results are set, later added to.
    """
    stack, rows, columns = out.shape
    panel = np.empty((depth, _COLUMNS), np.float32)
    scratch = np.zeros((_ROWS, _COLUMNS), np.float32)
    whole = (rows + _ROWS - 1) // _ROWS - panels.shape[1]
    for s in range(stack):
        own = s if left.shape[0] > 1 else 0
        for j in range(start, end):
            edge = j * _COLUMNS
            wide = min(_COLUMNS, columns - edge)
            at = panel.ctypes.data
            if right.strides[1] == 4 * _COLUMNS and right.strides[2] == 4 and columns == _COLUMNS:
                at = right.ctypes.data + s * right.strides[0] + first * right.strides[1]
            else:
                _pack(right[s], first, depth, edge, wide, _COLUMNS, panel)
            for i in range(whole + panels.shape[1]):
                top = i * _ROWS
                high = min(_ROWS, rows - top)
                if i < whole:
                    down, along = left.strides[1], left.strides[2]
                    place = left.ctypes.data + own * left.strides[0] + top * down + first * along
                else:
                    down, along = 4, 4 * _ROWS
                    place = panels.ctypes.data + (own * panels.shape[1] + i - whole) * depth * along
                if high == _ROWS and wide == _COLUMNS:
                    to = out.ctypes.data + s * out.strides[0] + top * out.strides[1] + edge * 4
                    _tile(place, down, along, at, to, out.strides[1], depth, first)
                    continue
                corner = out[s, top : top + high, edge : edge + wide]
                if first:
                    copy_matrix(corner, scratch[:high, :wide])
                _tile(place, down, along, at, scratch.ctypes.data, 4 * _COLUMNS, depth, first)
                copy_matrix(scratch[:high, :wide], corner)


def _multiply_panels(left, panels, out):
    """left (M, K), of unit steps along K, by the panels (N / 32, K, 32) of a matrix, to out (M, N)."""
    rows, length = left.shape
    down, stride = left.strides[0], out.strides[0]
    for j in range(panels.shape[0]):
        for first in range(0, length, _DEPTH):
            depth = min(_DEPTH, length - first)
            at = panels.ctypes.data + j * panels.strides[0] + first * panels.strides[1]
            place, to = left.ctypes.data + 4 * first, out.ctypes.data + 4 * j * _COLUMNS
            i = 0
            while i + _ROWS <= rows:
                _tile(place + i * down, down, 4, at, to + i * stride, stride, depth, first)
                i += _ROWS
            if i + 4 <= rows:
                _half_tile(place + i * down, down, 4, at, to + i * stride, stride, depth, first)
                i += 4
            while i < rows:
                _line(place + i * down, down, 4, at, to + i * stride, stride, depth, first)
                i += 1


_MATRIX, _SOURCE = (types.Array(types.float32, n, "A", readonly=True) for n in (2, 3))
_PACKED = types.Array(types.float32, 3, "C")
_PANELS = types.Array(types.float32, 4, "C")
_INT = types.intp


@functools.cache
def _packs_rows() -> Any:
    """`_pack_rows`, loaded or compiled at the first call, as the others."""
    return compiled(_pack_rows, _SOURCE, _INT, _INT, _INT, _PANELS)


@functools.cache
def _multiplies() -> Any:
    """`_multiply`."""
    out = types.Array(types.float32, 3, "A")
    return compiled(_multiply, _SOURCE, _PANELS, _SOURCE, _INT, _INT, _INT, _INT, out)


@functools.cache
def _is_at_home() -> bool:
    """Whether BLAS takes vectors of 512 bits on a processor that its kernels for them were written for: Intel's."""
    kernels = {pool.get("architecture") for pool in threadpool_info()}
    return "SkylakeX" in kernels and not binding.get_host_cpu_name().startswith("znver")


def worth_it(left: Array, right: Array) -> bool:
    """Whether `product` of left (*, M, K) and right (*, K, N) is done sooner than BLAS, on a processor with wide vectors."""
    rows, (length, columns) = left.shape[-2], right.shape[-2:]
    turns = right.strides[-2] == 4
    if not (
        AVAILABLE
        and left.shape[-1] == length  # NumPy refuses others
        and rows >= (_FEW_ROWS_TO_TURN if turns else _FEW_ROWS)
        and columns >= _FEW_COLUMNS
        and rows * length * columns >= (SMALL_PRODUCT if turns else _FEW_PRODUCTS)
    ):
        return False
    if rows >= _LARGE and columns >= _LARGE and length >= _LARGE and _is_at_home():
        return False
    if not (left.dtype == right.dtype == np.float32 and left.flags.aligned and right.flags.aligned):
        return False
    return not mkl.takes(left, right)


def matmul(left: Array, right: Array, out: Array | None = None) -> Array:
    """numpy.matmul of matrices or of stacks that have the same number of matrices, by whichever is done sooner."""
    if worth_it(left, right):
        return product(left, right, out)
    return by_blas(left, right, out)


def by(right: Array, times: int) -> Callable[[Array, Array], object]:
    """multiply(left (M, K), out (M, N)) for `times` products with right (K, N), which is packed once. K is at least 1.

    Rows of left and out have unit steps.
    """
    length, columns = right.shape
    if times == 1:
        return lambda left, out: matmul(left, right, out)
    if not is_packed(right):
        whole = np.ascontiguousarray(right)
        return lambda left, out: by_blas(left, whole, out)
    panels = np.empty((columns // _COLUMNS, length, _COLUMNS), np.float32)
    pack_columns, by_panels = _by_panels()
    pack_columns(right, panels)

    def multiply(left: Array, out: Array) -> object:
        fits = left.shape[1] == length and out.shape == (len(left), columns)
        if not fits or left.strides[1] != 4 or out.strides[1] != 4:
            raise ValueError(
                f"a product of {left.shape} and {right.shape} does not fit {out.shape}, both in order"
            )
        return by_panels(left, panels, out)

    return multiply


@functools.cache
def _by_panels() -> tuple[Any, Any]:
    """`_pack_columns` and `_multiply_panels`."""
    pack_columns = compiled(_pack_columns, _MATRIX, _PACKED)
    return pack_columns, compiled(_multiply_panels, _MATRIX, _PACKED, types.Array(types.float32, 2, "A"))


def is_packed(right: Array) -> bool:
    """Whether `by` multiplies with this matrix (K, N) by tiles of its own, and not by BLAS."""
    return AVAILABLE and right.dtype.char == "f" and right.shape[1] % _COLUMNS == 0


def product(left: Array, right: Array, out: Array | None = None) -> Array:
    """left (M, K) @ right (K, N), or (S or 1, M, K) @ (S, K, N), float32 of any strides, K at least 1.

    `out` has unit steps along N.
    """
    if out is None:  # an array of its own, of which a gradient needs no copy
        out = np.empty((*right.shape[:-2], left.shape[-2], right.shape[-1]), np.float32)
    if left.ndim == 2:
        product(left[None], right[None], out[None])
        return out
    rows, (stack, length, columns) = left.shape[1], right.shape
    if left.shape[2] != length or len(left) not in (1, stack) or out.shape != (stack, rows, columns):
        raise ValueError(f"a product of {left.shape} and {right.shape} does not fit {out.shape}")
    elements = out.size * length // PER_ELEMENT
    if columns < 2 * threads() * _COLUMNS < rows:  # few panels to share, and many rows

        def part(first: int, end: int) -> None:
            own = slice(first * _ROWS, end * _ROWS)
            _multiply_heights(left[:, own], right, out[:, own], elements)

        in_parts(part, -(-rows // _ROWS), elements)
    else:
        _multiply_heights(left, right, out, elements)
    return out


def _multiply_heights(left: Array, right: Array, out: Array, elements: int) -> None:
    for top in range(0, left.shape[1], _HEIGHT):
        _multiply_rows(left[:, top : top + _HEIGHT], right, out[:, top : top + _HEIGHT], elements)


def _multiply_rows(left: Array, right: Array, out: Array, elements: int) -> None:
    """`product` of so many rows that what is packed of them is small beside the operands. elements: see `in_parts`."""
    multiply = _multiplies()
    rows, columns = out.shape[1:]
    length = left.shape[2]
    panels = -(-columns // _COLUMNS)
    # Rows that lie along K are read where they are, but for the last ones if these fill no tile.
    whole = rows // _ROWS if left.strides[2] == 4 else 0
    for first in range(0, length, _DEPTH):
        depth = min(_DEPTH, length - first)
        packed = np.empty((len(left), -(-rows // _ROWS) - whole, depth, _ROWS), np.float32)
        if packed.size:
            _packs_rows()(left, first, depth, whole, packed)
        work = partial(_part, multiply, left, packed, right, first, depth, out)
        in_parts(work, panels, elements)


def _part(
    multiply: Any,
    left: Array,
    packed: Array,
    right: Array,
    first: int,
    depth: int,
    out: Array,
    start: int,
    end: int,
) -> None:
    multiply(left, packed, right, first, depth, start, end, out)
