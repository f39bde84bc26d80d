"""Portable bodies of the kernels that update flat arrays in place: optimizer steps, norms, scaling.

A backend may have faster ones under the same names (`backend/cpu/optimizer.py`). All arrays
of a call are contiguous, 1-D, real, of one length, dtype and device. Nothing here waits for
a device. Every element depends on its own position only, so the result of an update does
not depend on how parameters are laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backend.registry import register_body

Rule = Callable[..., Any]
"""rule(F, param, grad, *states, *numbers): the new parameter, or (new parameter, *new states).

Written with operators and the names where, maximum, minimum, sqrt, abs and sign of F, so that it
runs on arrays, on Tensors, and, compiled, on single numbers.
"""


def update_(
    F: Any,
    rule: Rule,
    targets: Sequence[Sequence[Any]],
    numbers: Sequence[Any],
    scale: Any = 1.0,
    decay: Any = 0.0,
    shrink: Any = 1.0,
    skip: Any = None,
) -> None:
    """Apply an optimizer's rule to each (param, grad, *states): `param` and `states` become what it makes of them.

    The rule is given shrink * param and scale * grad + decay * param. It computes 16-bit types in
    float32 and rounds once. `numbers`, `scale`, `decay` and `shrink` are Python's, or 0-d arrays on the
    device. skip: None, or a 0-d bool array: nothing changes where it is True. All arrays have one
    dtype and device; those of a target have one length.
    """
    dtype = np.dtype(np.float64 if targets[0][0].dtype == np.float64 else np.float32)

    def number(value: Any) -> Any:
        return value if isinstance(value, (int, float)) else F.cast(value, dtype)

    numbers = [number(value) for value in numbers]
    for param, grad, *states in targets:
        old = [F.cast(array, dtype) for array in (param, *states)]
        grad = F.cast(grad, dtype)
        if not _is(scale, 1):
            grad = grad * number(scale)
        if not _is(decay, 0):
            grad = grad + number(decay) * old[0]
        start = old[0] if _is(shrink, 1) else number(shrink) * old[0]
        new = rule(F, start, grad, *old[1:], *numbers)
        new = new if isinstance(new, tuple) else (new,)
        for target, value, before in zip((param, *states), new, old, strict=True):
            target[...] = value if skip is None else F.where(skip, before, value)


def _is(value: Any, number: float) -> bool:
    """Whether `value` is that number, without a question to a device."""
    return isinstance(value, (int, float)) and value == number


def sum_of_squares(F: Any, x: Any) -> Any:
    """The sum of x**2 over all elements, squared and added in float64; a device keeps it as a 0-d array."""
    wide = F.cast(x, np.float64)
    return F.sum(wide * wide)


def sums_of_squares(F: Any, arrays: Sequence[Any]) -> Any:
    """`sum_of_squares` of arrays on one device, added in their order."""
    total: Any = 0.0
    for x in arrays:
        total = total + F.sum_of_squares(x)
    return total


def root_of_squares(F: Any, arrays: Sequence[Any], dtype: Any) -> Any:
    """The root of `sums_of_squares`, 0-d and in `dtype`."""
    return F.asarray(F.sums_of_squares(arrays) ** 0.5, dtype)


def counts_of_squares(F: Any, like: Any, sizes: Sequence[int]) -> list[int] | None:
    """How many numbers `F.squares` gives for each of some arrays of the type and place of `like`, by their sizes.

    `sums_of_squares` of such arrays is the sum of all these numbers, by `.sum()`, and `root_of_squares` their `F.root_of_sum`. None: it adds one number for each array.
    """
    return None


def scale_(F: Any, x: Any, factor: float) -> None:
    """Multiply x by `factor` in place."""
    x *= factor


def clip_(F: Any, arrays: Sequence[Any], most: float, norm: Any) -> None:
    """Multiply arrays on one device by most / norm in place, where that is below 1 or nan. norm: 0-d, there."""
    factor = F.clamp(most / (F.cast(norm, np.float64) + 1e-6), None, 1.0)
    for x in arrays:
        x *= F.cast(factor, x.dtype)


def unscale_(F: Any, arrays: Sequence[Any], factor: Any) -> Any:
    """Whether an element of arrays on one device is not finite, as a 0-d bool; and multiply them by `factor`, unless None."""
    bad: Any = None
    for x in arrays:
        found = ~F.all(F.isfinite(x))
        bad = found if bad is None else bad | found
        if factor is not None:
            x *= F.cast(factor, x.dtype)
    return bad


for _body in (
    update_,
    sum_of_squares,
    sums_of_squares,
    root_of_squares,
    counts_of_squares,
    scale_,
    clip_,
    unscale_,
):
    register_body(_body.__name__, _body)
