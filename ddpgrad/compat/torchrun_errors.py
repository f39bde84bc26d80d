"""`record`, the decorator with which scripts mark their main function for torchrun's error files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def record(fn: F) -> F:
    """`fn` itself: ddprun shows the traceback of the rank that failed first without being asked."""
    return fn


__all__ = ["record"]
