"""What is left of divisions, compiled for the CPU without a branch for each element: float32, float64 and integers.

The bits are those of the C library's `fmod`, which computes digit by digit. A quotient cut to an integer is at most one off, and
what it leaves is a number of the type, so it comes out whole. Where a quotient has too many digits for that, the block that has
it is computed by `fmod`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ..dtype import prepare_narrow
from ..layout import beside
from .doublemath import floor, fused, whole
from .half import is_half, stored
from .threads import in_parts
from .vectormath import _INLINED, kernel, narrowed, part, widened

Array = np.ndarray[Any, Any]

_SMALL = 1024  # elements that NumPy is done with before compiled code has started
_BLOCK = 512
_INTEGERS = "il"
# Quotients and divisors of integers for which float64 has enough digits.
_FAR_OF_INTEGERS, _LARGE = 2.0**50, 2.0**61


def remainder(input: Any, other: Any) -> Array:
    """Python's `%`: the result has the sign of `other`."""
    return _each(_remainder, input, other, _INTEGERS)


def fmod(input: Any, other: Any) -> Array:
    """C's `fmod`: the result has the sign of `input`."""
    return _each(_fmod, input, other, "")


def floor_divide(input: Any, other: Any) -> Array:
    """The quotient rounded down, as Python's `//` does: from what is left, not from the rounded quotient."""
    if other.__class__ is int and input.dtype.kind == "i":
        return NotImplemented  # NumPy multiplies by a constant
    return _each(floor_of, input, other, _INTEGERS)


def _zero_like(rest: Any, sign: Any) -> Any:
    """0, of floats with the sign of `sign`."""
    raise NotImplementedError("for compiled code")


@overload(_zero_like)
def _(rest, sign):
    if isinstance(rest, types.Integer):
        return lambda rest, sign: type(rest)(0)
    return lambda rest, sign: math.copysign(type(rest)(0), sign)


def _each(element: Callable[..., Any], input: Any, other: Any, integers: str) -> Array:
    """The element of each pair of `input` and `other`, one of which may be a number, or repeated."""
    if getattr(input, "size", 0) < _SMALL > getattr(other, "size", 0):
        return NotImplemented
    arrays = [x for x in (input, other) if x.__class__ is np.ndarray]
    if not arrays:
        return NotImplemented
    dtype, half = arrays[0].dtype, is_half(arrays[0].dtype)
    if not (half or dtype.char in "fd" + integers) or not dtype.isnative or arrays[-1].dtype != dtype:
        return NotImplemented
    numbers = [x for x in (input, other) if x.__class__ is not np.ndarray]
    if any(x.__class__ is not int and (x.__class__ is not float or dtype.kind == "i") for x in numbers):
        return NotImplemented
    try:
        operands = [x if x.__class__ is np.ndarray else np.array(x, dtype) for x in (input, other)]
        shape = np.broadcast_shapes(*[x.shape for x in operands])
    except (ValueError, OverflowError):
        return NotImplemented  # NumPy says what is wrong
    full = next((x for x in operands if x.shape == shape), None)
    if full is None:
        return NotImplemented
    if half:
        prepare_narrow()
    # What is one number is repeated for a block, all else for all.
    wide = [x if x.size == 1 else np.broadcast_to(x, shape) for x in operands]
    out, flat, (_, *vectors) = beside(dtype, full, *[x for x in wide if x.size > 1])
    given = [stored(np.full(_BLOCK, x) if x.size == 1 else vectors.pop(0)) for x in wide]
    zeros = np.zeros(1, np.int64)
    work = partial(_loop(element), stored(flat), *given, wide[0].size > 1, wide[1].size > 1, zeros)
    in_parts(work, flat.size, 2 * flat.size)
    return NotImplemented if zeros[0] else out


@functools.cache
def _loop(element: Callable[..., Any]) -> Any:
    element = element if element is floor_of else part(element)

    def loop(out, a, b, many_a, many_b, zeros, first, end):
        for start in range(first, end, _BLOCK):
            stop = min(start + _BLOCK, end)
            sink = out[start:stop]
            x = a[start:stop] if many_a else a[: stop - start]
            y = b[start:stop] if many_b else b[: stop - start]
            far = False
            for i in range(sink.size):
                u, v = widened(x[i]), widened(y[i])
                rest, is_far = left(u, v)
                far |= is_far
                sink[i] = narrowed(element(rest, u, v, False), sink)
            if far:
                for i in range(sink.size):
                    u, v = widened(x[i]), widened(y[i])
                    rest, is_zero = left_slowly(u, v)
                    sink[i] = narrowed(element(rest, u, v, True), sink)
                    if is_zero:
                        zeros[0] = 1

    return kernel(loop, set())


def left(a: Any, b: Any) -> Any:
    """(what a division by `b` leaves of `a`, with the sign of `a`; whether it may not be so)."""
    raise NotImplementedError("for compiled code")


@overload(left, jit_options=_INLINED)
def _(a, b):
    if isinstance(a, types.Integer):

        def left_of_integer(a, b):
            # The quotient is at most one off: float64 has 53 bits.
            x, y = np.float64(a), np.float64(b)
            q = whole(x / y)
            is_far = not (abs(q) < _FAR_OF_INTEGERS and abs(y) < _LARGE)
            rest, size = np.int64(a) - np.int64(0.0 if is_far else q) * np.int64(b), abs(np.int64(b))
            below = a < 0
            rest = -rest if below else rest
            rest = rest + size if rest < 0 else rest
            rest = rest - size if rest >= size else rest
            return -rest if below else rest, is_far

        return left_of_integer
    limit = 2.0**29 if a == types.float32 else 2.0**52

    def left_of_float(a, b):
        x, y = np.float64(a), np.float64(b)
        q = whole(x / y)
        rest = fused(-q, y, x)
        rest = rest + math.copysign(y, x) if rest * math.copysign(1.0, x) < 0 else rest
        return type(a)(math.copysign(rest, x)), not (abs(q) < limit and abs(y) < math.inf)

    return left_of_float


def left_slowly(a: Any, b: Any) -> Any:
    """(the same for any numbers; whether an integer was divided by 0)."""
    raise NotImplementedError("for compiled code")


@overload(left_slowly)
def _(a, b):
    if isinstance(a, types.Integer):

        def left_of_integer(a, b):
            if b == 0 or b == -1:  # the smallest number has no negative
                return np.int64(0), b == 0
            rest = np.int64(a) % np.int64(b)
            return rest - b if rest != 0 and (a < 0) != (b < 0) else rest, False

        return left_of_integer
    return lambda a, b: (type(a)(np.fmod(a, b)), False)


def _fmod(rest, a, b, far):
    return rest


def _remainder(rest, a, b, far):
    zero = type(rest)(0)
    turned = rest + b if (rest < zero) != (b < zero) else rest
    return turned if rest != zero else _zero_like(rest, b)


def floor_of(rest: Any, a: Any, b: Any, far: Any) -> Any:
    """The quotient rounded down. far: whether float64 has too few digits for it."""
    raise NotImplementedError("for compiled code")


@overload(floor_of, jit_options=_INLINED)
def _(rest, a, b, far):
    if isinstance(a, types.Integer):

        def floor_of_integer(rest, a, b, far):
            down = (rest != 0) & ((rest < 0) != (b < 0))
            if far:
                if b == -1:
                    return -np.int64(a)
                return ((np.int64(a) - rest) // np.int64(b) if b != 0 else np.int64(0)) - down
            quotient = (np.float64(a) - np.float64(rest)) / np.float64(b)
            return np.int64(whole(quotient + math.copysign(0.5, quotient))) - down

        return floor_of_integer

    def floor_of_float(rest, a, b, far):
        zero, one, half = type(rest)(0), type(rest)(1), type(rest)(0.5)
        quotient = a / b
        whole_quotient = (a - rest) / b
        turns = (rest != zero) & ((rest < zero) != (b < zero))
        whole_quotient = whole_quotient - one if turns else whole_quotient
        down = floor(whole_quotient)
        down = down + one if whole_quotient - down > half else down
        down = down if whole_quotient != zero else math.copysign(zero, quotient)
        return quotient if b == zero else down

    return floor_of_float
