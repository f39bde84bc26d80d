"""Compiled sums: the buffers of all ranks are added in one pass through memory.

NumPy adds two buffers at a time, copies the result to each rank, and converts types of 16 bits an
element at a time. Here an element of each buffer is read, the sum of `tree` made, and written to
every rank: half of the time for float32, a tenth for float16, and the same bits. `tree` loads
this, and Numba with it, when that pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, types
from numba.np.numpy_support import carray

from ...backend.cpu.half import is_half, stored
from ...backend.cpu.vectormath import cached, instruction, narrowed, widened
from ...backend.elementary.shape import address_of
from .tree import plan

_CHUNK = 1 << 14
"""Elements of types of 16 bits that are carried through the tree at once."""


Sum = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]


@lru_cache(maxsize=256)
def sum_of(inputs: np.dtype, outputs: np.dtype, ranks: int, in_place: bool, divides: bool) -> Sum | None:
    """A function that writes the sum of the arrays of `ranks` to all outputs, or None where NumPy has to.

    inputs, outputs   their dtypes
    in_place          the outputs are the inputs
    divides           by the number of ranks
    Called with outputs and inputs: one-dimensional, contiguous, and of one length.
    """
    divisor = ranks if divides else 1
    if not inputs.isnative:
        return None
    if is_half(inputs):
        return _Narrow(inputs, outputs, ranks, divisor)
    if in_place and inputs.char in "fd" and ranks in _IN_PLACE:
        compiled = _IN_PLACE[ranks]
        return lambda outputs, inputs: compiled(*inputs, divisor)
    return None


class _Narrow:
    """The sum of arrays of 16 bits, made in float32."""

    def __init__(self, inputs: np.dtype, outputs: np.dtype, ranks: int, divisor: int) -> None:
        steps = plan(ranks)
        self._steps = np.array(steps, np.int64)
        self._slots = 1 + max(step.into for step in steps)
        self._divisor = divisor
        self._examples = [stored(np.empty(0, dtype)) for dtype in (inputs, outputs)]

    def __call__(self, outputs: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> None:
        slots = np.empty((self._slots, min(_CHUNK, inputs[0].size)), np.float32)
        _sum_narrow(
            _addresses(outputs), _addresses(inputs), inputs[0].size, self._steps, slots, self._divisor, *self._examples
        )  # fmt: skip


def _addresses(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([address_of(array) for array in arrays], np.int64)


# No option of fast mathematics anywhere here: the order of the sum is promised.
@cached
@njit(error_model="numpy", nogil=True)
def _add_two(a, b, divisor):
    for i in range(a.size):
        total = a[i] + b[i]
        if divisor != 1:
            total /= a.dtype.type(divisor)
        a[i] = total
        b[i] = total


@cached
@njit(error_model="numpy", nogil=True)
def _add_three(a, b, c, divisor):
    for i in range(a.size):
        total = (a[i] + b[i]) + c[i]
        if divisor != 1:
            total /= a.dtype.type(divisor)
        a[i] = total
        b[i] = total
        c[i] = total


@cached
@njit(error_model="numpy", nogil=True)
def _add_four(a, b, c, d, divisor):
    for i in range(a.size):
        total = (a[i] + b[i]) + (c[i] + d[i])
        if divisor != 1:
            total /= a.dtype.type(divisor)
        a[i] = total
        b[i] = total
        c[i] = total
        d[i] = total


# Of more ranks NumPy adds as fast.
_IN_PLACE: dict[int, Callable[..., None]] = {2: _add_two, 3: _add_three, 4: _add_four}


@instruction
def pointer(typingctx: Any, address: Any) -> Any:
    """The address as something that `carray` takes."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), build


@cached
@njit(error_model="numpy", nogil=True)
def _sum_narrow(outputs, inputs, length, steps, slots, divisor, example_in, example_out):
    chunk = slots.shape[1]
    for start in range(0, length, chunk):
        n = min(chunk, length - start)
        for step in range(steps.shape[0]):
            total = slots[steps[step, 0]]
            left, right = steps[step, 1], steps[step, 2]
            # What a slot gets from a slot on the left is its own: trees are walked from the left.
            if right < 0:
                other = slots[-1 - right]
                if left < 0:
                    for i in range(n):
                        total[i] += other[i]
                else:
                    x = carray(pointer(inputs[left] + start * example_in.itemsize), (n,), example_in.dtype)
                    for i in range(n):
                        total[i] = widened(x[i]) + other[i]
            else:
                y = carray(pointer(inputs[right] + start * example_in.itemsize), (n,), example_in.dtype)
                if left < 0:
                    for i in range(n):
                        total[i] += widened(y[i])
                else:
                    x = carray(pointer(inputs[left] + start * example_in.itemsize), (n,), example_in.dtype)
                    for i in range(n):
                        total[i] = widened(x[i]) + widened(y[i])
        total = slots[0]
        if divisor != 1:
            for i in range(n):
                total[i] /= slots.dtype.type(divisor)
        first = carray(pointer(outputs[0] + start * example_out.itemsize), (n,), example_out.dtype)
        for i in range(n):
            first[i] = narrowed(total[i], example_out)
        for k in range(1, outputs.size):
            output = carray(pointer(outputs[k] + start * example_out.itemsize), (n,), example_out.dtype)
            for i in range(n):
                output[i] = first[i]
