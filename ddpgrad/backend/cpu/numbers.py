"""The names that an optimizer's rule takes from `F`, on single numbers within a compiled loop."""

from __future__ import annotations

import math
from typing import Any

from numba import types
from numba.extending import overload, register_jitable

sqrt = math.sqrt


@register_jitable
def maximum(a: Any, b: Any) -> Any:
    """The larger; NaN if one is."""
    return where((a > b) | (a != a), a, b)


@register_jitable
def minimum(a: Any, b: Any) -> Any:
    """The smaller; NaN if one is."""
    return where((a < b) | (a != a), a, b)


@register_jitable
def abs(x: Any) -> Any:
    """|x|."""
    return math.fabs(x)


@register_jitable
def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 of NaN."""
    return where(x > 0, 1, where(x < 0, -1, where(x == x, x, 0)))


def where(condition: Any, a: Any, b: Any) -> Any:
    """a if condition else b."""
    return a if condition else b


@overload(where)
def _where(condition: Any, a: Any, b: Any) -> Any:
    # A number in the text of a rule, which is an integer or float64, must not make all of it float64.
    kind = min((t for t in (a, b) if isinstance(t, types.Float)), key=lambda t: t.bitwidth)

    def chosen(condition: Any, a: Any, b: Any) -> Any:
        return kind(a) if condition else kind(b)

    return chosen
