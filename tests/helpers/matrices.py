"""Matrices of cases: a few of them stand for the rest by default."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], *chosen: Any) -> list[Any]:
    """All `cases`; those that are not `chosen` have the mark `full`.

    A tuple is chosen by what it begins with, or by its first value alone.
    """
    heads = [choice if isinstance(choice, tuple) else (choice,) for choice in chosen]
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    for head in heads:
        assert any(row[: len(head)] == head for row in rows), f"no case begins with {head}"
    return [
        pytest.param(*row, marks=() if any(row[: len(h)] == h for h in heads) else pytest.mark.full)
        for row in rows
    ]
