"""Tables of functions by name, which decorators fill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def decorator_for(table: dict[Any, Any]) -> Callable[..., Callable[[F], F]]:
    """A decorator with arguments, which enters what it decorates into `table` under each of them."""

    def of(*keys: Any) -> Callable[[F], F]:
        def enter(function: F) -> F:
            table.update(dict.fromkeys(keys, function))
            return function

        return enter

    return of
