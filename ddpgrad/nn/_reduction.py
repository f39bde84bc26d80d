"""The former ways to ask for the reduction of a loss: by number, and by `size_average` and `reduce`."""

from __future__ import annotations

from .functional.reduction import KNOWN, chosen


def get_enum(reduction: str) -> int:
    """0 for none, 1 for mean, 2 for sum; ValueError for another word."""
    return KNOWN.index(chosen(reduction))


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The reduction that the two former options mean; warns unless told not to."""
    if emit_warning:
        return chosen("mean", size_average, reduce)
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """`legacy_get_string` as a number."""
    return KNOWN.index(legacy_get_string(size_average, reduce, emit_warning))
