"""NumPy's ufuncs of two arrays, one of which is repeated, as `matrix + row`: without NumPy's copies of what is repeated.

NumPy copies a repeated operand into buffers, which takes as long as the sum itself, in one thread. `install` puts a function
before each ufunc's own (https://docs.python.org/3/c-api/call.html#the-vectorcall-protocol), which looks at the shapes, and
leaves all calls but those of two large arrays of different ones to NumPy. NumPy's inner loops compute rows of whole memory, so
the bits are the same.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.ccallback import CFunc

from .element_loops import keep, memory, pointer
from .inner_loops import Head, call, elementwise, few_words
from .kernel_cache import cached
from .register_tile import intrinsic
from .shared_loops import QUICK
from .threads import in_parts
from .vectormath import _OPTIONS, instruction
from .watching import _EXCEPTIONS, _clear, _raised

Array = np.ndarray[Any, Any]

LEAST = 1 << 14  # elements from which it is worth it
_KINDS = "?bBhHiIlLqQefd"
# What NumPy may tell of, of <fenv.h>: all but that a result was rounded, or an operand subnormal.
_TOLD = 0x1D if platform.machine().lower() in ("x86_64", "amd64") else 0x0F
_ROW = 256  # elements that are worth a call of the inner loop
_BLOCK = 2048  # elements that are repeated at a time, so that they stay in the cache

# In the memory of objects, in bytes: of any its class; of an array its number of dimensions and where their sizes are; of a ufunc
# its loops. Behind these lie, in words: NumPy's function, ours, the class of arrays, NotImplemented.
_CLASS, _DIMS, _SIZES = 8, 24, 32
_LOOPS, _TYPES = Head.functions.offset, Head.ntypes.offset
NUMPYS, OURS, ARRAY, NOT_MINE = range(4)
_OFFSET = 56  # in a class, of what says at which offset its instances have their vectorcall function
_HAS_VECTORCALL = 1 << 11


@instruction
def _call_object(typingctx: Any, function: Any, callee: Any, args: Any, count: Any, names: Any) -> Any:
    """Call a vectorcall function by its address."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * 4)
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.intp(*[types.intp] * 5), build


@instruction
def _ask_python(typingctx: Any, function: Any, args: Any, count: Any) -> Any:
    """Call a Python object with as many objects at `args`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        asked = intrinsic(builder, "PyObject_Vectorcall", word, [word] * 4)
        return builder.call(asked, [*arguments, word(0)])

    return types.intp(*[types.intp] * 3), build


@instruction
def _forget(typingctx: Any, thing: Any) -> Any:
    """Count a reference to an object less."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.call(intrinsic(builder, "Py_DecRef", ir.VoidType(), [ir.IntType(64)]), arguments)
        return context.get_dummy_value()

    return types.void(types.intp), build


def _vectorcall(ufunc, args, count, names):
    table = pointer(pointer(ufunc + _LOOPS, 0)[0], 0)
    last = np.int64(pointer(ufunc + _TYPES, np.int32(0))[0])
    if names == 0 and count & 0xFFFF == 2:
        operands = pointer(args, 0)
        a, b = operands[0], operands[1]
        if (
            pointer(a + _CLASS, 0)[0] == table[last + ARRAY]
            and pointer(b + _CLASS, 0)[0] == table[last + ARRAY]
        ):
            dims_a, dims_b = pointer(a + _DIMS, np.int32(0))[0], pointer(b + _DIMS, np.int32(0))[0]
            sizes_a, sizes_b = pointer(pointer(a + _SIZES, 0)[0], 0), pointer(pointer(b + _SIZES, 0)[0], 0)
            alike, many_a, many_b = dims_a == dims_b, 1, 1
            for i in range(dims_a):
                many_a *= sizes_a[i]
                if alike and sizes_a[i] != sizes_b[i]:
                    alike = False
            for i in range(dims_b):
                many_b *= sizes_b[i]
            if not alike and dims_a != 0 and dims_b != 0 and max(many_a, many_b) >= LEAST:
                given = few_words()
                pointer(given, 0)[0], pointer(given, 0)[1], pointer(given, 0)[2] = ufunc, a, b
                result = _ask_python(table[last + OURS], given, 3)
                if result != table[last + NOT_MINE]:
                    return result
                _forget(result)
    return _call_object(table[last + NUMPYS], ufunc, args, count, names)


@cache
def _compiled() -> Any:
    hook = cached(CFunc(_vectorcall, (types.intp(*[types.intp] * 4).args, types.intp), {}, dict(_OPTIONS)))
    hook.compile()
    return hook


@cache
def install() -> None:
    """Let two large arrays of different shapes come here first."""
    if object.__basicsize__ != 2 * ctypes.sizeof(ctypes.c_void_p) or not np.ufunc.__flags__ & _HAS_VECTORCALL:
        return  # not the objects of CPython that this knows, where it is only slower
    offset = ctypes.c_ssize_t.from_address(id(np.ufunc) + _OFFSET).value
    keep(_compiled())
    for ufunc, head in elementwise():
        if ufunc.__name__ not in QUICK or (ufunc.nin, ufunc.nout) != (2, 1):
            continue  # the others' last bits may depend on how many elements a loop is given
        place = ctypes.c_void_p.from_address(id(ufunc) + offset)
        known = place.value, id(repeated), id(np.ndarray), id(NotImplemented)
        for word, value in zip((NUMPYS, OURS, ARRAY, NOT_MINE), known, strict=True):
            head.functions[head.ntypes + word] = value
        place.value = _compiled().address


def repeated(ufunc: np.ufunc, a: Array, b: Array) -> Any:
    """ufunc(a, b) where one has the shape of the result and the other is repeated; NotImplemented for all else."""
    dtype = a.dtype
    full, other, first = (a, b, True) if a.size > b.size else (b, a, False)
    if b.dtype != dtype or not dtype.isnative or dtype.char not in _KINDS or other.ndim > full.ndim:
        return NotImplemented
    if any(not (x.flags.c_contiguous and x.flags.aligned) for x in (full, other)):
        return NotImplemented
    groups = _groups(full.shape, (1,) * (full.ndim - other.ndim) + other.shape)
    loop = _loop_of(ufunc, dtype.char)
    if groups is None or loop is None or not other.size:
        return NotImplemented
    places, told, kind = loop
    outer, middle, inner = groups
    out = np.empty(full.shape, kind)
    flags = np.zeros(1, np.int64)

    def work(begin: int, end: int) -> None:
        _compute(
            places, told, full.ctypes.data, other.ctypes.data, out.ctypes.data, dtype.itemsize, out.itemsize, first,
            middle, inner, begin, end, flags,
        )  # fmt: skip

    in_parts(work, outer * middle, out.size)
    return NotImplemented if flags[0] else out  # NumPy tells of infinities and the like


def _groups(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(outer, middle, inner): `other` has the elements of the middle, and is repeated for the rest. None if it is not so."""
    if any(m not in (1, n) for n, m in zip(shape, other, strict=True)):
        return None  # each is repeated, or they do not fit
    wide = [d for d, m in enumerate(other) if m != 1]
    if not wide:
        return prod(shape), 1, 1
    low, high = wide[0], wide[-1] + 1
    if any(shape[d] != other[d] for d in range(low, high)):
        return None
    return prod(shape[:low]), prod(shape[low:high]), prod(shape[high:])


@cache
def _loop_of(ufunc: np.ufunc, letter: str) -> tuple[int, int, np.dtype[Any]] | None:
    head = Head.from_address(id(ufunc))
    for place, letters in enumerate(ufunc.types):
        if letters[:2] == letter * 2:
            return int(head.functions[place] or 0), int(head.data[place] or 0), np.dtype(letters[-1])
    return None


_buffer = memory(_BLOCK)


@njit(forceinline=True, **_OPTIONS)
def _fill(source, times, count, target, example):
    """Write each of `count` elements at `source` so many times."""
    values, sink = pointer(source, example), pointer(target, example)
    for m in range(count):
        for i in range(times):
            sink[m * times + i] = values[m]


@njit(forceinline=True, **_OPTIONS)
def _repeat(source, times, count, target, width):
    """`_fill` of elements of `width` bytes."""
    if width == 4:
        _fill(source, times, count, target, np.int32(0))
    elif width == 8:
        _fill(source, times, count, target, np.int64(0))
    elif width == 2:
        _fill(source, times, count, target, np.int16(0))
    else:
        _fill(source, times, count, target, np.int8(0))


@cached
@njit(**_OPTIONS)
def _compute(loop, told, full, other, out, width, out_width, first, middle, inner, begin, end, flags):
    """Rows begin… of (outer x middle, inner)."""
    places_at, steps_at, count_at, buffer = few_words(), few_words(), few_words(), _buffer()
    places, steps, size_of = pointer(places_at, 0), pointer(steps_at, 0), pointer(count_at, 0)
    mine, its = (0, 1) if first else (1, 0)
    steps[mine], steps[its], steps[2] = width, width, out_width
    _clear(_EXCEPTIONS)
    row = begin
    while row < end:
        m = row % middle
        source, rows = other + m * width, min(middle - m, end - row)
        if inner == 1:
            if middle >= _ROW:
                count = rows
            else:  # several rows at a time, of copies
                copies = _BLOCK // middle
                if m != 0 or end - row < middle:
                    count = rows
                else:
                    count = min(copies, (end - row) // middle) * middle
                    for k in range(count // middle):
                        _repeat(other, 1, middle, buffer + k * middle * width, width)
                    source = buffer
            taken = count
        elif inner >= _ROW:
            steps[its], count, taken = 0, inner, 1
        else:
            taken = min(rows, _BLOCK // inner)
            count = taken * inner
            _repeat(source, inner, taken, buffer, width)
            source = buffer
        places[mine], places[its] = full + row * inner * width, source
        places[2], size_of[0] = out + row * inner * out_width, count
        call(loop, places_at, count_at, steps_at, told)
        row += taken
    if _raised(_TOLD) != 0:
        flags[0] = 1
