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


def with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """The function `pool` of a face with `return_indices`, as a function of its own."""

    @named(f"{pool.__name__}_with_indices", f"`{pool.__name__}` with `return_indices`.")
    def function(*args: Any, **kwargs: Any) -> Any:
        return pool(*args, **{**kwargs, "return_indices": True})

    return function
