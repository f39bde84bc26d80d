"""The transforms of `backend/normals.py`, compiled: the same steps in the same order, and nothing regrouped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from ..normals import BLOCK, COS, FOUR_BY_PI, HALF, LN_2, LOG, QUARTER_PI, SIN, SQRT_HALF, TWO_PI
from .doublemath import fused
from .kernel_cache import cached, worth_compiling
from .vectormath import _OPTIONS, instruction

Array = np.ndarray[Any, Any]

_AT_ONCE = 32  # blocks whose numbers are brought side by side, so that loops over them vectorise
_INLINED: Any = {"forceinline": True, **_OPTIONS}
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = LOG
_ZERO, _HALF, _ONE, _TWO = (np.float32(c) for c in (0, 0.5, 1, 2))


def box_muller(unit: Array, out: Array, mean: float, std: float) -> bool:
    """Turn whole blocks of uniform numbers, float32 or float64, into normal ones in `out`; False where NumPy has sooner done so."""
    number = unit.dtype.type
    if number is np.float32 and not worth_compiling(normal_blocks, unit.size):
        return False
    (normal_blocks if number is np.float32 else _wide_blocks)(unit, out, number(mean), number(std))
    return True


def _reinterpreted(source: Any, bits: Any, target: Any) -> Any:
    """An intrinsic that takes the bits of a `source` for those of a `target`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], bits)

    return instruction(lambda typingctx, value: (target(source), build))


_float_of = _reinterpreted(types.uint32, ir.FloatType(), types.float32)
_bits_of = _reinterpreted(types.float32, ir.IntType(32), types.uint32)


@njit(**_INLINED)
def log_of_normal(x):
    """The logarithm of one positive float32 in the normal range."""
    bits = _bits_of(x)
    exponent = np.int32(bits >> np.uint32(23)) - np.int32(126)
    fraction = _float_of(bits & np.uint32(0x7FFFFF) | np.uint32(0x3F000000))
    low = fraction < SQRT_HALF
    e = np.float32(exponent - np.int32(low))
    x = (fraction - _ONE) + (fraction if low else _ZERO)
    z = x * x
    y = fused(_L0, x, _L1)
    y = fused(y, x, _L2)
    y = fused(y, x, _L3)
    y = fused(y, x, _L4)
    y = fused(y, x, _L5)
    y = fused(y, x, _L6)
    y = fused(y, x, _L7)
    y = fused(y, x, _L8)
    y = fused(y * x, z, e * LN_2[0]) - z * _HALF
    return fused(e, LN_2[1], x + y)


@njit(**_INLINED)
def _sin_cos(x):
    octant = (np.int32(x * FOUR_BY_PI) + np.int32(1)) & np.int32(-2)
    y = np.float32(octant)
    x = fused(y, QUARTER_PI[0], x)
    x = fused(y, QUARTER_PI[1], x)
    x = fused(y, QUARTER_PI[2], x)
    z = x * x
    cos = fused(fused(COS[0], z, COS[1]), z, COS[2]) * z
    cos = fused(cos, z, -(z * _HALF)) + _ONE
    sin = fused(fused(SIN[0], z, SIN[1]), z, SIN[2]) * z
    sin = fused(sin, x, x)
    swap = octant & np.int32(2) != 0
    first, second = cos if swap else sin, sin if swap else cos
    first = -first if octant & np.int32(4) != 0 else first
    second = second if (octant - np.int32(2)) & np.int32(4) != 0 else -second
    return first, second


@cached
@njit(fastmath=False, **_OPTIONS)  # or it would be compiled with the options of a kernel that calls it
def normal_blocks(unit, out, mean, std):
    """`box_muller` of float32; `unit` and `out` may be the same."""
    sizes, turns = np.empty(_AT_ONCE * HALF, np.float32), np.empty(_AT_ONCE * HALF, np.float32)
    for first in range(0, unit.size, _AT_ONCE * BLOCK):
        count = min(_AT_ONCE, (unit.size - first) // BLOCK)
        for i in range(count):
            for j in range(HALF):
                sizes[i * HALF + j] = unit[first + i * BLOCK + j]
                turns[i * HALF + j] = unit[first + i * BLOCK + HALF + j]
        for i in range(count * HALF):
            radius = np.float32(math.sqrt(-_TWO * log_of_normal(_ONE - sizes[i])))
            sin, cos = _sin_cos(TWO_PI * turns[i])
            sizes[i] = fused(radius * cos, std, mean)
            turns[i] = fused(radius * sin, std, mean)
        for i in range(count):
            for j in range(HALF):
                out[first + i * BLOCK + j] = sizes[i * HALF + j]
                out[first + i * BLOCK + HALF + j] = turns[i * HALF + j]


@cached
@njit(**_OPTIONS)
def _wide_blocks(unit, out, mean, std):
    for first in range(0, unit.size, BLOCK):
        for j in range(first, first + HALF):
            radius, angle = math.sqrt(-2.0 * math.log(1.0 - unit[j])), 2.0 * math.pi * unit[j + HALF]
            out[j] = fused(radius * math.cos(angle), std, mean)
            out[j + HALF] = fused(radius * math.sin(angle), std, mean)


@cached
@njit(**_OPTIONS)
def one_by_one(unit, out):
    """Turn pairs of uniform numbers into pairs of normal ones."""
    for i in range(0, unit.size, 2):
        radius, angle = math.sqrt(-2.0 * math.log1p(-unit[i + 1])), 2.0 * math.pi * unit[i]
        out[i], out[i + 1] = radius * math.cos(angle), radius * math.sin(angle)
