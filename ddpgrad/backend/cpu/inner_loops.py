"""The inner loops of NumPy's ufuncs: compiled code that calls them, and others in their places.

How a ufunc holds its loops, and how they are called: https://numpy.org/doc/stable/reference/c-api/ufunc.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from .element_loops import keep, memory
from .vectormath import _OPTIONS, instruction

MOST = 6  # operands of a ufunc
MORE = 4  # words behind a ufunc's loops, for `repeated_rows.py`


@instruction
def address_of(typingctx: Any, place: Any) -> Any:
    """The address that a pointer holds."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], ir.IntType(64))

    return types.intp(place), build


few_words = memory(MOST)


@instruction
def call(typingctx: Any, loop: Any, places: Any, count: Any, steps: Any, data: Any) -> Any:
    """Call an inner loop by its address, with the addresses of its arguments."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 4)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), build


@njit(**_OPTIONS)
def feeds_itself(args, steps, inputs, operands, count):
    """Whether an output lies where later steps read, or write: a reduction, or a running one."""
    for o in range(inputs, operands):
        if steps[o] == 0:
            return True
        for i in range(inputs):
            if args[i] == args[o] and steps[i] == steps[o]:
                continue
            far, far_o = (count - 1) * steps[i], (count - 1) * steps[o]
            low, high = args[i] + min(0, far), args[i] + max(0, far)
            low_o, high_o = args[o] + min(0, far_o), args[o] + max(0, far_o)
            if low <= high_o and low_o <= high:
                return True
    return False


class Head(ctypes.Structure):
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


def elementwise() -> Iterator[tuple[np.ufunc, Head]]:
    """NumPy's ufuncs of an element of each operand, with their heads."""
    umath: Any = import_module("numpy._core._multiarray_umath")
    found = {u for name in dir(np) if isinstance(u := getattr(np, name), np.ufunc)} | {umath.clip}
    for ufunc in found:
        if ufunc.signature is not None or ufunc.nargs > MOST:
            continue
        head = Head.from_address(id(ufunc))
        if (head.nin, head.nout, head.ntypes) != (ufunc.nin, ufunc.nout, len(ufunc.types)):
            raise ImportError(
                f"NumPy {np.__version__} does not hold the loops of numpy.{ufunc.__name__} as NumPy 2 does: install numpy<3"
            )
        if id(ufunc) not in _own:
            _own.add(id(ufunc))
            _give_own_tables(head)
        yield ufunc, head


_own: set[int] = set()


def _give_own_tables(head: Head) -> None:
    """Let a ufunc have its loops, and what they are told, in arrays that can be written to: NumPy's may be constants."""
    for name in ("functions", "data"):
        entries = getattr(head, name)
        own = (ctypes.c_void_p * (head.ntypes + MORE))(*[entries[i] for i in range(head.ntypes)])
        keep(own)
        setattr(head, name, ctypes.cast(own, ctypes.POINTER(ctypes.c_void_p)))


def put(head: Head, place: int, loop: int, told: int) -> None:
    """Have a ufunc compute by another loop, from the next call on."""
    head.functions[place], head.data[place] = loop, told
