"""Compiled optimizer steps for the CPU: one pass over flat arrays, in place, 16-bit floats in float32.

All arrays are C-contiguous and 1-D; those of one target have one length and do not overlap. For
other types a kernel does nothing and returns `NotImplemented`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from . import numbers as on_numbers
from .threads import in_parts, shared, threads
from .vectormath import compiled_for, kernel, narrowed, part, widened

_BLOCK = 1 << 14  # elements whose squares are summed before they join the total


def update_(
    rule: Callable[..., Any],
    targets: Sequence[Sequence[np.ndarray]],
    numbers: Sequence[float],
    scale: float = 1.0,
    decay: float = 0.0,
    shrink: float = 1.0,
    skip: np.ndarray | None = None,
) -> Any:
    """Apply an optimizer's rule to every element of each target: see `ops/dispatch/update.py`."""
    dtype = targets[0][0].dtype
    kind = dtype
    if dtype.itemsize == 2:
        from .half import is_half, stored

        if not is_half(dtype):
            return NotImplemented
        targets, kind = [[stored(array) for array in target] for target in targets], np.dtype(np.float32)
        dtype = targets[0][0].dtype
    elif not compiled_for(targets[0][0]):
        return NotImplemented
    if skip is not None:
        return NotImplemented
    for target in targets:
        for array in target:
            if array.dtype is not dtype:
                return NotImplemented
    number = kind.type
    loop = _loop(rule, len(targets[0]) - 2)[threads() > 1]
    scalars = (number(scale), number(decay), number(shrink), tuple(map(number, numbers)))
    for target in targets:
        loop(*target, *scalars)
    return None


def sum_of_squares(x: np.ndarray) -> float:
    """The sum of x**2 over all elements, squared and added in float64, in an order that x.size decides."""
    if x.dtype.itemsize == 2:
        from .half import is_half, stored

        if not is_half(x.dtype):
            return NotImplemented
        x = stored(x)
    elif not compiled_for(x):
        return NotImplemented
    flat = np.ascontiguousarray(x).reshape(-1)
    totals = np.empty(-(-x.size // _BLOCK))
    in_parts(partial(_sums_of_squares, flat, totals), len(totals), x.size)
    return float(totals.sum())


def scale_(x: np.ndarray, factor: float) -> None:
    """Multiply x by `factor` in place."""
    np.multiply(x, x.dtype.type(factor), out=x)


@functools.cache
def _loop(rule: Callable[..., Any], states: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """The compiled pass of a rule that has that many states: by the calling thread, and by all."""
    # What is kept on disk is found by the values that the loop names and closes over. The rule counts by its
    # name there, so its text must count as well, and that of what it calls: both may change while the names stay.
    codes = [
        rule.__code__,
        *(on_numbers.__dict__[name].__code__ for name in ("abs", "maximum", "minimum", "sign", "where")),
    ]
    found = [
        (code.co_code, [c for c in code.co_consts if not hasattr(c, "co_code")], code.co_names)
        for code in codes
    ]
    text = hashlib.sha256(repr(found).encode()).hexdigest()
    loop = kernel(_LOOPS[states](part(rule), text))
    return loop, shared("param", "grad", *"abc"[:states])(loop)


@part
def decayed(decay, p):
    """What a decay adds to a gradient: nothing without one, be the parameter infinite."""
    return decay * p if decay != 0 else decay


def _without_state(rule: Any, text: str) -> Callable[..., None]:
    def loop(param, grad, scale, decay, shrink, numbers):
        _ = text
        for i in range(param.size):
            p = widened(param[i])
            new = rule(on_numbers, shrink * p, scale * widened(grad[i]) + decayed(decay, p), *numbers)
            param[i] = narrowed(new, param)

    return loop


def _with_one(rule: Any, text: str) -> Callable[..., None]:
    def loop(param, grad, a, scale, decay, shrink, numbers):
        _ = text
        for i in range(param.size):
            p = widened(param[i])
            g = scale * widened(grad[i]) + decayed(decay, p)
            new, first = rule(on_numbers, shrink * p, g, widened(a[i]), *numbers)
            param[i], a[i] = narrowed(new, param), narrowed(first, a)

    return loop


def _with_two(rule: Any, text: str) -> Callable[..., None]:
    def loop(param, grad, a, b, scale, decay, shrink, numbers):
        _ = text
        for i in range(param.size):
            p = widened(param[i])
            g = scale * widened(grad[i]) + decayed(decay, p)
            new, first, second = rule(on_numbers, shrink * p, g, widened(a[i]), widened(b[i]), *numbers)
            param[i], a[i], b[i] = narrowed(new, param), narrowed(first, a), narrowed(second, b)

    return loop


def _with_three(rule: Any, text: str) -> Callable[..., None]:
    def loop(param, grad, a, b, c, scale, decay, shrink, numbers):
        _ = text
        for i in range(param.size):
            p = widened(param[i])
            g = scale * widened(grad[i]) + decayed(decay, p)
            old = widened(a[i]), widened(b[i]), widened(c[i])
            new, first, second, third = rule(on_numbers, shrink * p, g, old[0], old[1], old[2], *numbers)
            param[i], a[i], b[i], c[i] = (
                narrowed(new, param),
                narrowed(first, a),
                narrowed(second, b),
                narrowed(third, c),
            )

    return loop


_LOOPS = (_without_state, _with_one, _with_two, _with_three)


@kernel
def _sums_of_squares(x, totals, first, end):
    for k in range(first, end):
        block = x[k * _BLOCK : (k + 1) * _BLOCK]
        total = 0.0
        for i in range(block.size):
            v = np.float64(widened(block[i]))
            total += v * v
        totals[k] = total
