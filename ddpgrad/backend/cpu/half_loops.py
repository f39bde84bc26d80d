"""NumPy's arithmetic on floats of 16 bits, by its own float32 loops on blocks that are converted in the cache.

NumPy computes float16 an element at a time, and so do the loops that ml_dtypes registers for bfloat16. `install` puts
another inner loop into each ufunc for these types: it converts a block of the operands, has NumPy's float32 loop
compute it and rounds the results once, so the bits stay. Other types are as they were, and nothing asks for a type.

How a ufunc holds its loops, and how they are called: https://numpy.org/doc/stable/reference/c-api/ufunc.html
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.core.ccallback import CFunc

from ..dtype import bfloat16, float16
from .half import is_half
from .vectormath import _KERNEL, _OPTIONS, cached, instruction, narrowed, widened

Array = np.ndarray[Any, Any]

# Below this many elements NumPy is done before compiled code has started.
_SMALL = 1024

_BLOCK = 1024  # elements that are converted at a time: the operands of a block stay in the first-level cache
_MOST = 4  # operands of a ufunc
_ROOM = 4 * _BLOCK + 64  # bytes from one operand's block to the next: NumPy takes neighbours for overlapping
_OTHER, _BFLOAT16, _FLOAT16 = range(3)  # kinds of operands
# What a loop is told, in words: the float32 loop and its data, the former loop and its data, the number of inputs and
# of all operands, and the kind of each operand.
_FIRST_KIND = 6

_WORDS = types.CPointer(types.intp)
_INLINED: Any = {"forceinline": True, "fastmath": _KERNEL, **_OPTIONS}


@instruction
def _pointer(typingctx: Any, address: Any, example: Any) -> Any:
    """The number `address` as a pointer to what `example` is."""
    pointer = types.CPointer(example)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.intp, example), build


@instruction
def _address(typingctx: Any, pointer: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], ir.IntType(64))

    return types.intp(pointer), build


def _memory(words: int) -> Any:
    """A function that gives the address of that many words on the stack of who calls it."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), words))
        memory.align = 64
        return builder.ptrtoint(memory, ir.IntType(64))

    return instruction(lambda typingctx: (types.intp(), build))


_few_words, _buffers = _memory(_MOST), _memory(_MOST * _ROOM // 8)


@instruction
def _call(typingctx: Any, loop: Any, places: Any, count: Any, steps: Any, data: Any) -> Any:
    """Call an inner loop by its address, with the addresses of its arguments."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 4)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), build


@njit(**_INLINED)
def _widen(source, step, count, buffer, example):
    """Convert `count` elements at `source`, stored as `example` is, to float32 at `buffer`."""
    target = _pointer(buffer, np.float32(0))
    if step == 2:
        row = _pointer(source, example)
        for i in range(count):
            target[i] = widened(row[i])
    else:
        for i in range(count):
            target[i] = widened(_pointer(source + i * step, example)[0])


@njit(**_INLINED)
def _narrow(buffer, count, target, step, example):
    """Round `count` float32 at `buffer` to elements at `target`."""
    values = _pointer(buffer, np.float32(0))
    if step == 2:
        row = _pointer(target, example)
        for i in range(count):
            row[i] = narrowed(values[i], row)
    else:
        for i in range(count):
            row = _pointer(target + i * step, example)
            row[0] = narrowed(values[i], row)


@njit(**_OPTIONS)
def _feeds_itself(args, steps, inputs, operands, count):
    """Whether an output lies where later steps read: a reduction, or a running one."""
    for o in range(inputs, operands):
        for i in range(inputs):
            if args[i] == args[o] and steps[i] == steps[o] and steps[o] != 0:
                continue
            far, far_o = (count - 1) * steps[i], (count - 1) * steps[o]
            low, high = args[i] + min(0, far), args[i] + max(0, far)
            low_o, high_o = args[o] + min(0, far_o), args[o] + max(0, far_o)
            if low <= high_o and low_o <= high:
                return True
    return False


def _loop(args, dims, steps, data):
    """An inner loop: places and strides in bytes of the operands, the number of elements, what it is told."""
    count, inputs, operands = dims[0], data[4], data[5]
    block = _BLOCK
    if count > 1 and _feeds_itself(args, steps, inputs, operands, count):
        if data[2] != 0:
            _call(data[2], _address(args), _address(dims), _address(steps), data[3])
            return
        block = 1
    places_at, steps_at, count_at, buffers = _few_words(), _few_words(), _few_words(), _buffers()
    places, strides, size_of = _pointer(places_at, 0), _pointer(steps_at, 0), _pointer(count_at, 0)
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
            else:
                _widen(place, step, part, buffer, np.int16(0))
        _call(data[0], places_at, count_at, steps_at, data[1])
        for k in range(inputs, operands):
            place, kind = args[k] + first * steps[k], data[_FIRST_KIND + k]
            if kind == _BFLOAT16:
                _narrow(buffers + k * _ROOM, size, place, steps[k], np.uint16(0))
            elif kind == _FLOAT16:
                _narrow(buffers + k * _ROOM, size, place, steps[k], np.int16(0))


# Of these only the sign changes: the bits of an element that are kept, and those that are turned over.
_SIGNS = {"negative": (0xFFFF, 0x8000), "absolute": (0x7FFF, 0), "fabs": (0x7FFF, 0)}


def _sign_loop(args, dims, steps, data):
    """An inner loop of a ufunc of `_SIGNS`, told its bits."""
    keep, turned = np.uint16(data[0]), np.uint16(data[1])
    source, target = _pointer(args[0], np.uint16(0)), _pointer(args[1], np.uint16(0))
    if steps[0] == 2 and steps[1] == 2:
        for i in range(dims[0]):
            target[i] = (source[i] & keep) ^ turned
    else:
        for i in range(dims[0]):
            value = _pointer(args[0] + i * steps[0], np.uint16(0))[0]
            _pointer(args[1] + i * steps[1], np.uint16(0))[0] = (value & keep) ^ turned


class _Ufunc(ctypes.Structure):
    """The public head of NumPy's PyUFuncObject."""

    _fields_ = (
        ("object", ctypes.c_byte * object.__basicsize__),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
    )


_REGISTER_LOOP = 2  # place of PyUFunc_RegisterLoopForType in the table of NumPy's C functions
# What these compute depends on the type itself.
_OF_THE_TYPE = {"nextafter", "spacing"}

_kept: list[Any] = []
"""What the loops point to."""

_wide: dict[str, tuple[int, int]] = {}
"""NumPy's float32 loops of two operands by the ufuncs' names, each with its data."""


def by_a_number(name: str, input: Any, other: Any) -> Array:
    """The ufunc `name` of an array of 16-bit floats and a number, either first: the number is not rounded before."""
    array = input if isinstance(input, np.ndarray) else other
    if array.size < _SMALL or not is_half(array.dtype):
        return NotImplemented
    install()
    kind = _BFLOAT16 if array.dtype == bfloat16.numpy else _FLOAT16
    out = np.empty_like(array)
    number = np.array(other if array is input else input, np.float32)
    operands = [x.ravel("K") for x in ((array, number) if array is input else (number, array))] + [
        out.ravel("K")
    ]
    kinds = [kind if x.itemsize == 2 else _OTHER for x in operands]
    told = np.array([*_wide[name], 0, 0, 2, 3, *kinds])
    places = np.array([x.ctypes.data for x in operands])
    steps = np.array([2 if x.itemsize == 2 else 0 for x in operands])
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(_kept[0].address)(
        places.ctypes.data, np.array([array.size]).ctypes.data, steps.ctypes.data, told.ctypes.data
    )
    return out


def install() -> None:
    """Let NumPy's ufuncs compute bfloat16, and float16 where the processor converts it, by blocks in float32."""
    if _kept:
        return
    umath: Any = import_module("numpy._core._multiarray_umath")
    signature = _WORDS(*[_WORDS] * 4).args, types.void
    loops = [cached(CFunc(body, signature, {}, dict(_OPTIONS))) for body in (_loop, _sign_loop)]
    for loop in loops:
        loop.compile()
    _kept.extend(loops)
    register = _registering(umath._UFUNC_API)
    former: list[tuple[Any, int, int, Array]] = []
    found = {u for name in dir(np) if isinstance(u := getattr(np, name), np.ufunc)} | {umath.clip}
    for ufunc in found:
        if ufunc.signature is not None or ufunc.__name__ in _OF_THE_TYPE or ufunc.nargs > _MOST:
            continue
        head = _Ufunc.from_address(id(ufunc))
        if (head.nin, head.nout, head.ntypes) != (ufunc.nin, ufunc.nout, len(ufunc.types)):
            raise ImportError(
                f"NumPy {np.__version__} does not hold the loops of numpy.{ufunc.__name__} as NumPy 2 does: install numpy<3"
            )
        signs = _SIGNS.get(ufunc.__name__)
        address = loops[signs is not None].address
        for i, letters in enumerate(ufunc.types):
            if "f" not in letters.partition("-")[0] or i != ufunc.types.index(letters):
                continue  # NumPy takes the first of several loops for the same types
            wide = head.functions[i], head.data[i] or 0
            if letters == "ff->f":
                _wide[ufunc.__name__] = wide
            if letters.replace("f", "e") in ufunc.types and is_half(float16.numpy):
                place = ufunc.types.index(letters.replace("f", "e"))
                old = head.functions[place], head.data[place] or 0
                former.append(
                    (head, place, address, _told(ufunc, letters, _FLOAT16, *(signs or (*wide, *old))))
                )
            kinds = [bfloat16.numpy if c == "f" else np.dtype(c) for c in letters.replace("->", "")]
            if _has_loop(ufunc, kinds):
                numbers = (ctypes.c_int * len(kinds))(*[kind.num for kind in kinds])
                told = _told(ufunc, letters, _BFLOAT16, *(signs or (*wide, 0, 0)))
                if register(ufunc, bfloat16.numpy.num, address, numbers, told.ctypes.data):
                    raise ImportError(f"NumPy takes no loop for bfloat16 in numpy.{ufunc.__name__}")
    entries = _entries([(address, told.ctypes.data) for _, _, address, told in former])
    for (head, place, _, _), entry in zip(former, entries, strict=True):
        head.functions[place] = entry


def _registering(capsule: Any) -> Any:
    """NumPy's PyUFunc_RegisterLoopForType, from its table of C functions."""
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = ctypes.cast(address(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    pointers = ctypes.py_object, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
    return ctypes.PYFUNCTYPE(ctypes.c_int, *pointers)(table[_REGISTER_LOOP])


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
    _kept.append(told)
    return told


def _entries(told: list[tuple[int, int]]) -> list[int]:
    """Addresses of functions that call a loop with what it is told: NumPy's own types hand a loop nothing else."""
    word = ir.IntType(64)
    kind = ir.FunctionType(ir.VoidType(), [word] * 4)
    module = ir.Module()
    module.triple = binding.get_default_triple()
    for i, (loop, data) in enumerate(told):
        function = ir.Function(module, kind, f"entry{i}")
        builder = ir.IRBuilder(function.append_basic_block())
        entry = builder.inttoptr(word(loop), kind.as_pointer())
        builder.call(entry, [*function.args[:3], word(data)])
        builder.ret_void()
    machine = binding.Target.from_default_triple().create_target_machine(opt=0)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
    engine.finalize_object()
    _kept.append(engine)
    return [engine.get_function_address(f"entry{i}") for i in range(len(told))]
