"""NumPy ufuncs of functions of one element, or of two, that are compiled here: float32, float64 and floats of 16 bits.

A ufunc of NumPy's starts in a fifth of the time of a compiled kernel, allocates, follows strides, and is shared by threads as the
others are (`shared_loops.py`). Floats of 16 bits are computed in float32 (`half_loops.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.ccallback import CFunc

from ..dtype import bfloat16, prepare_narrow
from ..layout import is_in_order, memory_order
from .kernel_cache import cached
from .vectormath import _KERNEL, _OPTIONS, instruction, part

Array = np.ndarray[Any, Any]

_SMALL = 1024  # elements that cost less than the question how they lie
_BLOCK = 64  # elements: a multiple of what any processor's vectors hold, four of them at a time
_MAKE_UFUNC = 1  # place of PyUFunc_FromFuncAndData in the table of NumPy's C functions
_NO_IDENTITY = -1
_WORDS = types.CPointer(types.intp)

_kept: list[Any] = []


def keep(what: Any) -> None:
    """Let what NumPy points to stay for ever."""
    _kept.append(what)


@instruction
def pointer(typingctx: Any, address: Any, example: Any) -> Any:
    """The number `address` as a pointer to what `example` is."""
    kind = types.CPointer(example)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(types.intp, example), build


def memory(words: int) -> Any:
    """A function that gives the address of that many words on the stack of who calls it."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), words))
        place.align = 64
        return builder.ptrtoint(place, ir.IntType(64))

    return instruction(lambda typingctx: (types.intp(), build))


def compiled_loop(body: Any, fastmath: Any = False) -> Any:
    """An inner loop for NumPy, of a function of the places, the count, the strides in bytes and what the loop is told."""
    options = {"fastmath": fastmath, **_OPTIONS}
    loop = cached(CFunc(body, (_WORDS(*[_WORDS] * 4).args, types.void), {}, options))
    loop.compile()
    return loop


@cache
def table_of_functions() -> Any:
    """The addresses of NumPy's C functions for ufuncs."""
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = import_module("numpy._core._multiarray_umath")._UFUNC_API
    return ctypes.cast(address(capsule, None), ctypes.POINTER(ctypes.c_void_p))


class _Own:
    """ufuncs: those of one loop that were made here. around: another loop for one, with what it is told, once loops are shared."""

    ufuncs: list[np.ufunc] = []  # noqa: RUF012 - one list for the process
    around: Callable[[str, int, int, int], tuple[int, int]] | None = None


own = _Own()


def make_ufunc(name: str, kinds: list[np.dtype[Any]], loop: int, told: int) -> np.ufunc:
    """A ufunc of one loop, with inputs and a result of `kinds`."""
    if own.around is not None:
        loop, told = own.around(name, len(kinds), loop, told)
    functions, data = (ctypes.c_void_p * 1)(loop), (ctypes.c_void_p * 1)(told)
    types, text = bytes(kind.num for kind in kinds), name.encode()
    keep((functions, data, types, text))
    signature = (
        ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_int] * 4,
        ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int,
    )  # fmt: skip
    make = ctypes.PYFUNCTYPE(*signature)(table_of_functions()[_MAKE_UFUNC])
    ufunc = make(functions, data, types, 1, len(kinds) - 1, 1, _NO_IDENTITY, text, None, 0)
    own.ufuncs.append(ufunc)
    return ufunc


_buffers = memory(3 * _BLOCK)


def of_elements(element: Callable[..., Any], *arrays: Array, options: tuple[float, ...] = ()) -> Any:
    """element(x, *options), or element(g, x, *options), of every element of one or two arrays, in their type and of theirs.

    options: numbers, which the element gets in the type of the arrays. `NotImplemented` for other types.
    """
    last = arrays[-1].dtype
    if arrays[-1].size > _SMALL:
        arrays = tuple([_without_gaps(array) for array in arrays])
    if len(arrays) == 2 and arrays[0].dtype != last:
        return NotImplemented
    key = element, last.char
    ufunc = _ufuncs[key] if key in _ufuncs else _made(element, last, len(arrays), len(options))
    if ufunc is None:
        return NotImplemented
    if not options:
        return ufunc(*arrays)
    number = np.float32 if last.itemsize == 2 else last.type
    return ufunc(*arrays, *[number(option) for option in options])


def _without_gaps(array: Array) -> Array:
    """An array, or a copy where its rows lie apart, which NumPy would compute one by one."""
    if array.flags.forc or not any(array.strides) or is_in_order(array, memory_order(array)):
        return array
    return array.copy(order="K")


_ufuncs: dict[tuple[Callable[..., Any], str], Any] = {}


def _made(element: Callable[..., Any], dtype: np.dtype[Any], arrays: int, options: int) -> Any:
    """The ufunc of an element for one type; None where there is none."""
    key = element, dtype.char
    if dtype.char in "fd":
        _ufuncs[key] = _ufunc(element, dtype, arrays, options)
    elif dtype.itemsize != 2 or dtype.kind not in "fV":
        _ufuncs[key] = None
    else:
        prepare_narrow()
        from . import half, half_loops  # which programs without such numbers do not load

        if not half.is_half(dtype):
            _ufuncs[key] = None
            return None
        single = np.dtype(np.float32)
        wide = _ufuncs.get((element, "f")) or _made(element, single, arrays, options)
        kinds = [*[dtype] * arrays, *[single] * options, dtype]
        loop, told = half_loops.wide_loop(wide, kinds)
        if dtype == bfloat16.numpy:
            half_loops.register(wide, kinds, *half_loops.around(element.__name__, len(kinds), loop, told))
            _ufuncs[key] = wide
        else:
            _ufuncs[key] = make_ufunc(element.__name__, kinds, loop, told)
    return _ufuncs[key]


def _ufunc(element: Callable[..., Any], dtype: np.dtype[Any], arrays: int, options: int) -> Any:
    body = (_over_one if arrays == 1 else _over_pairs)(part(element), dtype.type, _READ[options])
    loop = compiled_loop(body, fastmath=getattr(element, "fastmath", _KERNEL))
    keep(loop)
    kinds = [dtype] * (arrays + options + 1)
    return make_ufunc(element.__name__, kinds, loop.address, 0)


# -- loops -----------------------------------------------------------------------------------
# Whole blocks only: what is left over is computed in a block too, since compilers divide otherwise in vectors than one by one.


@part
def _number(address, kind):
    return pointer(address, kind(0))[0]


_READ: dict[int, Any] = {
    0: part(lambda args, first, kind: ()),
    1: part(lambda args, first, kind: (_number(args[first], kind),)),
    2: part(lambda args, first, kind: (_number(args[first], kind), _number(args[first + 1], kind))),
    3: part(
        lambda args, first, kind: (
            _number(args[first], kind), _number(args[first + 1], kind), _number(args[first + 2], kind),
        )
    ),
}  # fmt: skip
"""By their number: how a loop reads its options, from the place of the first on."""


@part
def _block(source, step, size, width, buffer, kind):
    """Where a block begins with `size` elements: there, or in a buffer that is filled, with the first of them behind."""
    if step == width and size == _BLOCK:
        return source
    row = pointer(buffer, kind(0))
    for i in range(size):
        row[i] = _number(source + i * step, kind)
    for i in range(size, _BLOCK):
        row[i] = row[0]
    return buffer


@part
def _scatter(buffer, size, target, step, kind):
    row = pointer(buffer, kind(0))
    for i in range(size):
        pointer(target + i * step, kind(0))[0] = row[i]


def _over_one(element, kind, read):
    width, room = np.dtype(kind).itemsize, 8 * _BLOCK

    def loop(args, dims, steps, data):
        options = read(args, 1, kind)
        last = 1 + len(options)
        count, step, step_out = dims[0], steps[0], steps[last]
        whole = count - count % _BLOCK if step == width and step_out == width else 0
        x, out = pointer(args[0], kind(0)), pointer(args[last], kind(0))
        for i in range(whole):
            out[i] = element(x[i], *options)
        buffers = _buffers()
        out = pointer(buffers + room, kind(0))
        for first in range(whole, count, _BLOCK):
            size = min(_BLOCK, count - first)
            x = pointer(_block(args[0] + first * step, step, size, width, buffers, kind), kind(0))
            for i in range(_BLOCK):
                out[i] = element(x[i], *options)
            _scatter(buffers + room, size, args[last] + first * step_out, step_out, kind)

    return loop


def _over_pairs(element, kind, read):
    width, room = np.dtype(kind).itemsize, 8 * _BLOCK

    def loop(args, dims, steps, data):
        options = read(args, 2, kind)
        last = 2 + len(options)
        count, step_g, step, step_out = dims[0], steps[0], steps[1], steps[last]
        straight = step_g == width and step == width and step_out == width
        whole = count - count % _BLOCK if straight else 0
        g, x, out = pointer(args[0], kind(0)), pointer(args[1], kind(0)), pointer(args[last], kind(0))
        for i in range(whole):
            out[i] = element(g[i], x[i], *options)
        buffers = _buffers()
        out = pointer(buffers + 2 * room, kind(0))
        for first in range(whole, count, _BLOCK):
            size = min(_BLOCK, count - first)
            g = pointer(_block(args[0] + first * step_g, step_g, size, width, buffers, kind), kind(0))
            x = pointer(_block(args[1] + first * step, step, size, width, buffers + room, kind), kind(0))
            for i in range(_BLOCK):
                out[i] = element(g[i], x[i], *options)
            _scatter(buffers + 2 * room, size, args[last] + first * step_out, step_out, kind)

    return loop
