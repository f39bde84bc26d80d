"""Where the rules of kernels on MappedArrays stand, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...core.errors import NotMapped
from ...core.tables import decorator_for
from ..registry import backend_for
from .array import MappedArray, repeated

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
"""Kernel name -> rule(H, *args): the kernel's result on all examples, where H is the backend of the examples.

A rule that does not know how raises NotMapped: the kernel then runs for each example.
"""

TOTALS: dict[str, Callable[..., tuple[tuple[int, ...], Callable[[], Any]]]] = {}
"""Kernel name -> total(H, *args): the shape of one result, and a function that gives the sum of all without computing each."""

rule = decorator_for(RULES)
"""Makes the decorated function the rule of kernels."""

total = decorator_for(TOTALS)
"""Makes the decorated function the total of kernels."""


def each(values: Iterable[Any], count: int) -> list[Any]:
    """Arrays of all examples, of those that are no MappedArrays as well; numbers as they are."""
    return [
        v.whole
        if v.__class__ is MappedArray
        else backend_for(v).clone(repeated(v, count))
        if hasattr(v, "strides")
        else v
        for v in values
    ]


def later(dim: Any, ndim: int) -> Any:
    """Where dimensions of an example are among those of all examples."""
    if dim is None:
        return tuple(range(1, ndim + 1))
    if isinstance(dim, (tuple, list)):
        return tuple([later(d, ndim) for d in dim])
    if not ndim:
        raise NotMapped  # where dimension 0 of what has none is
    return dim % ndim + 1


def ndim_of(value: Any) -> int:
    """How many dimensions an array has; a number has none."""
    return getattr(value, "ndim", 0)
