"""Arithmetic of 16-bit floats and Python's numbers, in one kernel each that computes in float32 and rounds once.

CuPy makes float32 of bfloat16 and a Python float, which takes a second kernel to undo, moves three times the bytes, and
no longer fits the other operands. `install` gives its arrays operators that keep bfloat16.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]

from ..dtype import NARROW

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
