"""Floats of 16 bits on a CPU: how compiled code reads and writes them, and their conversion.

NumPy converts float16 an element at a time, which takes ten times as long. The bits are NumPy's; which of the many
NaNs a NaN becomes is the processor's choice.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import overload

from ..dtype import numpy_of
from .vectormath import instruction, kernel

Array = np.ndarray[Any, Any]

# As which integers compiled code gets the types of 16 bits, that the one is not taken for the other.
_STORED = {"bfloat16": np.dtype(np.uint16), "float16": np.dtype(np.int16)}
_X86 = platform.machine().lower() in ("x86_64", "amd64")
if _X86 and not binding.get_host_cpu_features().get("f16c", False):
    del _STORED["float16"]  # this processor has no instruction for it

# Below this many elements NumPy is done before compiled code has started.
_SMALL = 1024


def is_half(dtype: np.dtype[Any]) -> bool:
    """True for a type of 16 bits that compiled code can read and write here."""
    return dtype.itemsize == 2 and dtype.name in _STORED and dtype.isnative


def stored(array: Array) -> Array:
    """`array` as compiled code takes it: see `widened` and `narrowed`."""
    return array.view(_STORED[array.dtype.name]) if is_half(array.dtype) else array


def cast(input: Array, dtype: Any) -> Array:
    """`input` as `dtype`, one of the types of 16 bits or float32 to another."""
    target = numpy_of(dtype)
    if input.size < _SMALL or input.dtype == target or not input.flags.c_contiguous:
        return NotImplemented
    if not all(is_half(kind) or (kind.char == "f" and kind.isnative) for kind in (input.dtype, target)):
        return NotImplemented
    out = np.empty(input.shape, target)
    _convert(stored(input.reshape(-1)), stored(out.reshape(-1)))
    return out


def _reinterpreted(source: Any, bits: Any, target: Any) -> Any:
    """An intrinsic that takes the bits of a `source` for those of a `target`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], bits)

    return instruction(lambda typingctx, value: (target(source), build))


_float_of = _reinterpreted(types.uint32, ir.FloatType(), types.float32)
_bits_of = _reinterpreted(types.float32, ir.IntType(32), types.uint32)


@instruction
def _from_half(typingctx: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.int16), build


@instruction
def _to_half(typingctx: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.int16(types.float32), build


def widened(stored):
    """An element of `stored` as float32; one of another type as it is."""
    raise NotImplementedError("for compiled code")


def narrowed(value, example):
    """`value`, rounded to the type that `example` is stored as."""
    raise NotImplementedError("for compiled code")


@overload(widened, inline="always")
def _(stored):
    if stored == types.uint16:
        return lambda stored: _float_of(np.uint32(stored) << np.uint32(16))
    if stored == types.int16:
        return lambda stored: _from_half(stored)
    return lambda stored: stored


@overload(narrowed, inline="always")
def _(value, example):
    if example.dtype == types.uint16:

        def to_bfloat16(value, example):
            bits = _bits_of(value)
            # Half of the last place, and ties to even; NaN would overflow to something else.
            rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            nan = (bits >> np.uint32(16)) & np.uint32(0x8000) | np.uint32(0x7FC0)
            return np.uint16(nan if value != value else rounded)

        return to_bfloat16
    if example.dtype == types.int16:
        return lambda value, example: _to_half(value)
    return lambda value, example: value


@kernel
def _convert(source, target):
    for i in range(target.size):
        target[i] = narrowed(widened(source[i]), target)
