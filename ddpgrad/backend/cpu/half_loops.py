"""NumPy's arithmetic on floats of 16 bits, by its own float32 loops on blocks that are converted in the cache.

NumPy computes float16 an element at a time, and so do the loops that ml_dtypes registers for bfloat16. `install` puts
another inner loop into each ufunc for these types: it converts a block of the operands, has NumPy's float32 loop
compute it and rounds the results once, so the bits stay. Other types are as they were, and nothing asks for a type.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from ..dtype import bfloat16, float16
from ..layout import beside
from .element_loops import compiled_loop, keep, memory, pointer, table_of_functions
from .half import CONVERTS_FLOAT16, is_half
from .inner_loops import MOST, Head, address_of, call, elementwise, feeds_itself, few_words, put
from .shared_loops import around
from .shared_loops import install as install_shared
from .vectormath import _KERNEL, _OPTIONS, narrowed, widened

Array = np.ndarray[Any, Any]

# Below this many elements NumPy is done before compiled code has started.
_SMALL = 1024

_BLOCK = 1024  # elements that are converted at a time: the operands of a block stay in the first-level cache
_ROOM = 4 * _BLOCK + 64  # bytes from one operand's block to the next: NumPy takes neighbours for overlapping
_OTHER, _BFLOAT16, _FLOAT16 = range(3)  # kinds of operands
_CODES = {"bfloat16": _BFLOAT16, "float16": _FLOAT16}
# What a loop is told, in words: the float32 loop and its data, the former loop and its data, the number of inputs and
# of all operands, and the kind of each operand.
_FIRST_KIND = 6

_INLINED: Any = {"forceinline": True, "fastmath": _KERNEL, **_OPTIONS}
_buffers = memory(MOST * _ROOM // 8)


@njit(**_INLINED)
def _widen(source, step, count, buffer, example):
    """Convert `count` elements at `source`, stored as `example` is, to float32 at `buffer`."""
    target = pointer(buffer, np.float32(0))
    if step == 2:
        row = pointer(source, example)
        for i in range(count):
            target[i] = widened(row[i])
    else:
        for i in range(count):
            target[i] = widened(pointer(source + i * step, example)[0])


@njit(**_INLINED)
def _narrow(buffer, count, target, step, example):
    """Round `count` float32 at `buffer` to elements at `target`."""
    values = pointer(buffer, np.float32(0))
    if step == 2:
        row = pointer(target, example)
        for i in range(count):
            row[i] = narrowed(values[i], row)
    else:
        for i in range(count):
            row = pointer(target + i * step, example)
            row[0] = narrowed(values[i], row)


def _loop(args, dims, steps, data):
    """An inner loop: places and strides in bytes of the operands, the number of elements, what it is told."""
    count, inputs, operands = dims[0], data[4], data[5]
    block = _BLOCK
    if count > 1 and feeds_itself(args, steps, inputs, operands, count):
        if data[2] != 0:
            call(data[2], address_of(args), address_of(dims), address_of(steps), data[3])
            return
        block = 1
    places_at, steps_at, count_at, buffers = few_words(), few_words(), few_words(), _buffers()
    places, strides, size_of = pointer(places_at, 0), pointer(steps_at, 0), pointer(count_at, 0)
    for first in range(0, count, block):
        size = min(block, count - first)
        size_of[0] = size
        for k in range(operands):
            place, step, kind = args[k] + first * steps[k], steps[k], data[_FIRST_KIND + k]
            places[k], strides[k] = place, step
            if kind == _OTHER:
                continue
            buffer = buffers + k * _ROOM
            places[k], strides[k] = buffer, 4
            if k >= inputs:
                continue
            part = size
            if step == 0:  # one number for all, converted once
                part, strides[k] = 1 if first == 0 or block == 1 else 0, 0
            if kind == _BFLOAT16:
                _widen(place, step, part, buffer, np.uint16(0))
            elif CONVERTS_FLOAT16:  # else Numba leaves this out
                _widen(place, step, part, buffer, np.int16(0))
        call(data[0], places_at, count_at, steps_at, data[1])
        for k in range(inputs, operands):
            place, kind = args[k] + first * steps[k], data[_FIRST_KIND + k]
            if kind == _BFLOAT16:
                _narrow(buffers + k * _ROOM, size, place, steps[k], np.uint16(0))
            elif CONVERTS_FLOAT16 and kind == _FLOAT16:
                _narrow(buffers + k * _ROOM, size, place, steps[k], np.int16(0))


# Of these only the sign changes: the bits of an element that are kept, and those that are turned over.
_SIGNS = {"negative": (0xFFFF, 0x8000), "absolute": (0x7FFF, 0), "fabs": (0x7FFF, 0)}


def _sign_loop(args, dims, steps, data):
    """An inner loop of a ufunc of `_SIGNS`, told its bits."""
    keep, turned = np.uint16(data[0]), np.uint16(data[1])
    source, target = pointer(args[0], np.uint16(0)), pointer(args[1], np.uint16(0))
    if steps[0] == 2 and steps[1] == 2:
        for i in range(dims[0]):
            target[i] = (source[i] & keep) ^ turned
    else:
        for i in range(dims[0]):
            value = pointer(args[0] + i * steps[0], np.uint16(0))[0]
            pointer(args[1] + i * steps[1], np.uint16(0))[0] = (value & keep) ^ turned


_REGISTER_LOOP = 2  # place of PyUFunc_RegisterLoopForType in the table of NumPy's C functions
# What these compute depends on the type itself.
_OF_THE_TYPE = {"nextafter", "spacing"}

_wide: dict[str, tuple[int, int]] = {}
"""NumPy's float32 loops of two operands by the ufuncs' names, each with its data."""


def by_a_number(name: str, input: Any, other: Any) -> Array:
    """The ufunc `name` of an array of 16-bit floats and a number, either first: the number is not rounded before."""
    array = input if isinstance(input, np.ndarray) else other
    if array.size < _SMALL or not is_half(array.dtype):
        return NotImplemented
    install()
    out, flat, (vector,) = beside(array.dtype, array)
    number = np.array(other if array is input else input, np.float32)
    operands = [vector, number, flat] if array is input else [number, vector, flat]
    loop, told = _loop_by_a_number(name, array.dtype == bfloat16.numpy, array is input)
    places = np.array([x.ctypes.data for x in operands])
    steps = np.array([2 if x.itemsize == 2 else 0 for x in operands])
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(loop)(
        places.ctypes.data, np.array([array.size]).ctypes.data, steps.ctypes.data, told
    )
    return out


@cache
def _loop_by_a_number(name: str, brain: bool, first: bool) -> tuple[int, int]:
    kind = _BFLOAT16 if brain else _FLOAT16
    kinds = (kind, _OTHER, kind) if first else (_OTHER, kind, kind)
    told = np.array([*_wide[name], 0, 0, 2, 3, *kinds])
    keep(told)
    return around(name, 3, _loops()[0].address, told.ctypes.data)


def wide_loop(ufunc: np.ufunc, kinds: list[np.dtype[Any]]) -> tuple[int, int]:
    """An inner loop for operands of `kinds`, with what it is told, by the float32 loop that is the only one of `ufunc`."""
    install()
    head = Head.from_address(id(ufunc))
    codes = [_CODES.get(kind.name, _OTHER) for kind in kinds]
    told = np.array(
        [head.functions[0], head.data[0] or 0, 0, 0, len(kinds) - 1, len(kinds), *codes], np.int64
    )
    keep(told)
    return _loops()[0].address, told.ctypes.data


def register(ufunc: np.ufunc, kinds: list[np.dtype[Any]], loop: int, told: int) -> None:
    """Let `ufunc` compute operands of `kinds`, with bfloat16 among them, by a loop of its own."""
    numbers = (ctypes.c_int * len(kinds))(*[kind.num for kind in kinds])
    pointers = ctypes.py_object, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
    function = ctypes.PYFUNCTYPE(ctypes.c_int, *pointers)(table_of_functions()[_REGISTER_LOOP])
    if function(ufunc, bfloat16.numpy.num, loop, numbers, told):
        raise ImportError(f"NumPy takes no loop for bfloat16 in {ufunc.__name__}")


@cache
def _loops() -> list[Any]:
    return [compiled_loop(body) for body in (_loop, _sign_loop)]


@cache
def install() -> None:
    """Let NumPy's ufuncs compute bfloat16, and float16 where the processor converts it, by blocks in float32."""
    install_shared()
    for ufunc, head in elementwise():
        if ufunc.__name__ in _OF_THE_TYPE:
            continue
        signs = _SIGNS.get(ufunc.__name__)
        address = _loops()[signs is not None].address
        for i, letters in enumerate(ufunc.types):
            if "f" not in letters.partition("-")[0] or i != ufunc.types.index(letters):
                continue  # NumPy takes the first of several loops for the same types
            wide = head.functions[i], head.data[i] or 0
            if letters == "ff->f":
                _wide[ufunc.__name__] = wide
            if letters.replace("f", "e") in ufunc.types and is_half(float16.numpy):
                place = ufunc.types.index(letters.replace("f", "e"))
                old = head.functions[place], head.data[place] or 0
                told = _told(ufunc, letters, _FLOAT16, *(signs or (*wide, *old)))
                loop = around(ufunc.__name__, ufunc.nargs, address, told.ctypes.data, ufunc.nin)
                put(head, place, *loop)
            kinds = [bfloat16.numpy if c == "f" else np.dtype(c) for c in letters.replace("->", "")]
            if _has_loop(ufunc, kinds):
                told = _told(ufunc, letters, _BFLOAT16, *(signs or (*wide, 0, 0)))
                loop = around(ufunc.__name__, ufunc.nargs, address, told.ctypes.data, ufunc.nin)
                register(ufunc, kinds, *loop)


def _has_loop(ufunc: np.ufunc, kinds: list[np.dtype[Any]]) -> bool:
    """Whether the ufunc computes exactly these types of inputs and outputs."""
    try:
        return list(ufunc.resolve_dtypes((*kinds[: ufunc.nin], *[None] * ufunc.nout))) == kinds
    except TypeError:
        return False


def _told(ufunc: np.ufunc, letters: str, kind: int, *loops: int) -> np.ndarray[Any, Any]:
    """What `_loop` is told of a ufunc whose operands are of `kind` where `letters` has float32."""
    kinds = [kind if letter == "f" else _OTHER for letter in letters.replace("->", "")]
    told = np.array([*loops, ufunc.nin, ufunc.nargs, *kinds], np.int64)
    keep(told)
    return told
