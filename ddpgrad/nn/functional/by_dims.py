"""Functions that differ in the number of dimensions only: one is written, and made for each number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SIZES = {1: "L", 2: "H, W", 3: "D, H, W"}
"""What texts call the dimensions."""


def named(name: str, text: str) -> Callable[[F], F]:
    """Give the decorated function its public name and text."""

    def give(function: F) -> F:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = text
        return function

    return give
