"""Arithmetic of 16-bit floats and Python's numbers, in one kernel each that computes in float32 and rounds once.

CuPy makes float32 of bfloat16 and a Python float, which takes a second kernel to undo, moves three times the bytes, and
no longer fits the other operands. `install` gives its arrays operators that keep bfloat16.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from ..dtype import NARROW
from .segments import INPUTS, PLACE, tables_of
from .source import elementwise

Array = Any

_EXPRESSIONS = {
    "add": "a + b", "subtract": "a - b", "multiply": "a * b", "divide": "a / b", "floor_divide": "floorf(a / b)",
    "power": "powf(a, b)",
}  # fmt: skip
_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power",
}  # fmt: skip
_BFLOAT16 = NARROW[1].char


@functools.cache
def _kernel(name: str, number_first: bool) -> Callable[[Array, float], Array]:
    """The ufunc `name` of an array and a number."""
    a, b = ("number", "(float)x") if number_first else ("(float)x", "number")
    return cupy.ElementwiseKernel(
        "T x, float32 number",
        "T out",
        f"const float a = {a}, b = {b}; out = (T)({_EXPRESSIONS[name]});",
        f"ddpgrad_{name}_{'of' if number_first else 'by'}_a_number",
    )


def by_a_number(name: str, input: Any, other: Any) -> Array:
    """The ufunc `name` of an array of 16-bit floats and a number, either first: the number is not rounded before."""
    number_first = not isinstance(input, cupy.ndarray)
    array, number = (other, input) if number_first else (input, other)
    if array.dtype not in NARROW or isinstance(number, complex):
        return NotImplemented
    return _kernel(name, number_first)(array, number)


def cast_together(arrays: Sequence[Array], dtype: np.dtype[Any]) -> list[Array]:
    """Casts of arrays of one type to 16 bits, by one launch into one block of memory, where they are contiguous."""
    listed = [x for x in arrays if x.size and x.flags.c_contiguous]
    if len(listed) < 2:
        return [x.astype(dtype) for x in arrays]
    sizes = [-(-x.size // _APART) * _APART for x in listed]
    begins = [0, *itertools.accumulate(sizes)]
    block = cupy.empty(begins[-1], dtype)
    rows = [[x.size, x.data.ptr, begin] for x, begin in zip(listed, begins, strict=False)]
    _cast_rows(*tables_of(rows), listed[0], block)
    casts = iter(
        [block[begin : begin + x.size].reshape(x.shape) for x, begin in zip(listed, begins, strict=False)]
    )
    return [next(casts) if x.size and x.flags.c_contiguous else x.astype(dtype) for x in arrays]


_APART = 128  # elements: what begins here lies as well for cuBLAS as memory of its own

_cast_rows = elementwise(
    f"{INPUTS}, raw S like",
    "raw T out",
    f"""{PLACE}
    out[row[3] + place] = (T)((const S*)row[2])[place];
    """,
    "cast_rows",
)


def install() -> None:
    """Let the operators of CuPy's arrays keep bfloat16 beside Python's floats; all else is as it was."""
    for name, ufunc in _OPERATORS.items():
        for number_first in (False, True):
            _attach(f"__{'r' if number_first else ''}{name}__", ufunc, number_first)


def _attach(operator: str, ufunc: str, number_first: bool) -> None:
    plain = getattr(cupy.ndarray, operator)

    def method(self: Array, other: Any, *modulo: Any) -> Array:
        if other.__class__ is float and self.dtype.char == _BFLOAT16:
            return _kernel(ufunc, number_first)(self, other)
        return plain(self, other, *modulo)

    setattr(cupy.ndarray, operator, functools.update_wrapper(method, plain))
