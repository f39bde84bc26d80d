"""NumPy's ufuncs, computed by all threads of a process where operands are large.

`install` puts another inner loop into each ufunc, which hands parts of a long one to the helpers of `threads.py` without the
GIL. A short one costs a comparison, about a nanosecond. Reductions and running sums are one loop each and stay in one thread.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .element_loops import compiled_loop, keep, own, pointer
from .inner_loops import Head, address_of, call, elementwise, put
from .watching import LEAST, STATE, share

# What a loop is told, in words: the loop in whose place it is, and what that is told; the number of inputs and of operands; the
# address of what `watching.py` says of helpers; by how many bits elements count for more, as they take longer.
_INNER, _TOLD, _INPUTS, _OPERANDS, _STATE, _SHIFT = range(6)

_NUMBERS = frozenset("?bBhHiIlLqQefdgFDG->")
QUICK = frozenset({
    "absolute", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "clip", "conjugate", "copysign", "divide", "equal",
    "fabs", "floor", "fmax", "fmin", "greater", "greater_equal", "invert", "isfinite", "isinf", "isnan", "left_shift", "less",
    "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative",
    "not_equal", "positive", "reciprocal", "right_shift", "rint", "sign", "signbit", "sqrt", "square", "subtract", "trunc",
})  # fmt: skip
_SLOWER = 2  # as a power of 2: how much longer others take


def _loop(args, dims, steps, data):
    count, state = dims[0], pointer(data[_STATE], 0)
    if count << data[_SHIFT] >= state[LEAST] and share(
        args, count, steps, data[_INNER], data[_TOLD], data[_INPUTS], data[_OPERANDS], data[_STATE]
    ):
        return
    call(data[_INNER], address_of(args), address_of(dims), address_of(steps), data[_TOLD])


@cache
def _address() -> int:
    loop = compiled_loop(_loop)
    keep(loop)
    return loop.address


def around(name: str, operands: int, loop: int, told: int, inputs: int | None = None) -> tuple[int, int]:
    """An inner loop, and what it is told, that share `loop`, one of the ufunc `name`; with one output if nothing is said."""
    shift = 0 if name in QUICK else _SLOWER
    inputs = operands - 1 if inputs is None else inputs
    words = np.array([loop, told, inputs, operands, STATE.ctypes.data, shift], np.int64)
    keep(words)
    return _address(), words.ctypes.data


@cache
def install() -> None:
    """Let all of NumPy's loops of numbers be shared, when `STATE` says that there are helpers."""
    own.around = around
    for ufunc in own.ufuncs:
        head = Head.from_address(id(ufunc))
        put(head, 0, *around(ufunc.__name__, ufunc.nargs, head.functions[0], head.data[0] or 0))
    for ufunc, head in elementwise():
        for place, letters in enumerate(ufunc.types):
            if _NUMBERS.issuperset(letters):
                told = head.data[place] or 0
                loop = around(ufunc.__name__, ufunc.nargs, head.functions[place], told, ufunc.nin)
                put(head, place, *loop)
