"""A copy of float32 matrices with rows and columns exchanged, turned in registers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import types

from .patch_product import LANES
from .register_tile import moved_block
from .vectormath import compiled

Array = np.ndarray[Any, Any]

_transposed = moved_block(LANES, True)


def turn(source: Array, out: Array) -> None:
    """Copy aligned matrices (*, C, R), which have unit steps along R, to a C-contiguous array (*, R, C)."""
    count, high, wide = source.shape
    if source.strides[2] != 4 or out.shape != (count, wide, high):
        raise ValueError(f"{source.shape} with steps of {source.strides} bytes does not fit {out.shape}")
    _copy()(source, out)


def _turn_all(x, out):
    """x (*, C, R), of unit steps along R, to out (*, R, C)."""
    high, wide = x.shape[1:]
    down, along = high - high % LANES, wide - wide % LANES
    pitch, stride = x.strides[1], out.strides[1]
    for b in range(x.shape[0]):
        source, sink = x.ctypes.data + b * x.strides[0], out.ctypes.data + b * out.strides[0]
        for r in range(0, down, LANES):
            for c in range(0, along, LANES):
                _transposed(source + r * pitch + 4 * c, pitch, sink + c * stride + 4 * r, stride)
        for c in range(wide):
            for r in range(down if c < along else 0, high):
                out[b, c, r] = x[b, r, c]


@functools.cache
def _copy() -> Any:
    """Loaded or compiled at the first call."""
    source = types.Array(types.float32, 3, "A", readonly=True)
    return compiled(_turn_all, source, types.Array(types.float32, 3, "C"))
