"""Line search by the strong Wolfe conditions.

Source: J. Nocedal and S. Wright, Numerical Optimization, 2nd ed., algorithms 3.5 and 3.6; the
interpolation and the safeguards are those of M. Schmidt's minFunc, which PyTorch has too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Point(NamedTuple):
    """A point on the line: how far along it is, the function there, its gradient, and its slope along the line."""

    step: float
    value: float
    gradient: Any
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point],
    start: Point,
    step: float,
    length: float,
    *,
    tolerance: float,
    most: int,
    c1: float = 1e-4,
    c2: float = 0.9,
) -> tuple[Point, int]:
    """(the point found, how many were evaluated); `step` is tried first.

    length: the largest element of the direction; an interval that is smaller than `tolerance` in
    the parameters is not searched. most: how many points to try after the first.
    """

    def too_high(point: Point) -> bool:
        return point.value > start.value + c1 * point.step * start.slope

    def flat_enough(point: Point) -> bool:
        return abs(point.slope) <= -c2 * start.slope

    # Go on until an interval is found in which there is such a point.
    before, point, tried = start, evaluate(step), 0
    while tried < most:
        if too_high(point) or (tried > 1 and point.value >= before.value):
            break
        if flat_enough(point):
            return point, tried + 1
        if point.slope >= 0:
            break
        further = point.step + 0.01 * (point.step - before.step), 10 * point.step
        before, point = point, evaluate(_lowest(before, point, further))
        tried += 1
    else:
        before = start

    # Make the interval smaller.
    low, high = (before, point) if before.value <= point.value else (point, before)
    slow = False
    while tried < most and abs(high.step - low.step) * length >= tolerance:
        left, right = sorted((low.step, high.step))
        step, slow = _inside(_lowest(low, high, (left, right)), left, right, slow)
        point = evaluate(step)
        tried += 1
        if too_high(point) or point.value >= low.value:
            low, high = (low, point) if low.value <= point.value else (point, low)
            continue
        if flat_enough(point):
            return point, tried + 1
        low, high = point, low if point.slope * (high.step - low.step) >= 0 else high
    return low, tried + 1


def _inside(step: float, left: float, right: float, slow: bool) -> tuple[float, bool]:
    """`step`, moved off the ends of the interval if it was near one before; and whether it is near one now."""
    margin = 0.1 * (right - left)
    if min(right - step, step - left) >= margin:
        return step, False
    if not slow and left < step < right:
        return step, True
    return (right - margin if abs(step - right) < abs(step - left) else left + margin), False


def _lowest(a: Point, b: Point, bounds: tuple[float, float]) -> float:
    """Where the cubic through two points with their slopes is lowest, within `bounds`; the middle if nowhere."""
    if a.step > b.step:
        a, b = b, a
    if a.step == b.step:  # without a tolerance intervals are searched that have no width
        return (bounds[0] + bounds[1]) / 2
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.step - b.step)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (bounds[0] + bounds[1]) / 2
    d2 = math.sqrt(square)
    below = b.slope - a.slope + 2 * d2
    if below == 0:
        return math.nan
    step = b.step - (b.step - a.step) * ((b.slope + d2 - d1) / below)
    return min(max(step, bounds[0]), bounds[1])
