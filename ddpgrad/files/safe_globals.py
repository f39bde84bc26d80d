"""Which classes and functions of the user's a file may name: `torch.serialization.add_safe_globals` and its like."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_BLOCKED = ("sys", "os", "posix", "nt")  # PyTorch's list: nothing of these is ever allowed
_allowed: list[Any] = []


def module_of(obj: Any) -> str:
    """The name of the module of a class or function: its own, where programs know it by several."""
    name = getattr(obj, "__module__", None) or ""
    return getattr(sys.modules.get(name), "__name__", name)


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Let `load` make objects of these classes, and call these functions, with weights_only=True.

    safe_globals: classes and functions, or (class or function, the name by which files call it).
    """
    _allowed.extend(one for one in safe_globals if one not in _allowed)


def get_safe_globals() -> list[Any]:
    """What the user has declared safe."""
    return list(_allowed)


def clear_safe_globals() -> None:
    """Declare nothing safe but plain data."""
    _allowed.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """A block in which these are declared safe too: see `add_safe_globals`."""
    before = list(_allowed)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _allowed[:] = before


def by_name() -> dict[str, Any]:
    """What the user has declared safe, by the name that files have for it."""
    named = [
        one if isinstance(one, tuple) else (one, f"{module_of(one)}.{one.__qualname__}") for one in _allowed
    ]
    return {name: one for one, name in named if name.rpartition(".")[0] not in _BLOCKED}
