"""State that is global in PyTorch and belongs to one rank here.

One process may host several ranks as threads (see `distributed/ranks/host.py`). A `RankLocal`
holds one value per hosted rank; threads that no rank was bound to, such as the main
thread of an ordinary run, share the value of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class _Binding(threading.local):
    key: object = None


_binding = _Binding()


def bind(key: object) -> None:
    """Make the calling thread act for the hosted rank `key` (None: for the process)."""
    _binding.key = key


def bound() -> object:
    """The hosted rank that the calling thread acts for, or None."""
    return _binding.key


_all: WeakSet[RankLocal[Any]] = WeakSet()


def release(key: object) -> None:
    """Forget every value of the hosted rank `key`, whose run has ended."""
    for state in list(_all):
        state._values.pop(key, None)


class RankLocal(Generic[T]):
    """One value per rank hosted in this process, made by `factory` on first use."""

    def __init__(self, factory: Callable[[], T]) -> None:
        self._factory = factory
        self._values: dict[object, T] = {}
        _all.add(self)

    def get(self) -> T:
        key = _binding.key
        try:
            return self._values[key]
        except KeyError:
            return self._values.setdefault(key, self._factory())

    def set(self, value: T) -> None:
        self._values[_binding.key] = value

    def clear(self) -> None:
        """Forget the calling rank's value; the next `get` makes a new one."""
        self._values.pop(_binding.key, None)
