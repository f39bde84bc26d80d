"""`torch._dynamo`: former names of `torch.compiler`. Nothing is compiled, so marks have no effect."""

from __future__ import annotations

from typing import Any

from . import absent
from .compiler import (
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
)

__path__: list[str] = []  # absent modules are found below

PART = absent.Part("nothing is compiled here; programs run as they are", "explain export optimize")
globals().update(absent.stand_ins("_dynamo", PART))
__getattr__ = absent.looks_below(__name__)


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing: there is no recorded step that would need it."""


def mark_dynamic(t: Any, index: Any, *args: Any, **kwargs: Any) -> None:
    """Nothing: shapes are read anew in every step."""


def is_dynamo_supported() -> bool:
    """False: nothing is compiled."""
    return False


mark_static = maybe_mark_dynamic = mark_dynamic

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "disable", "is_compiling", "list_backends", "mark_dynamic", "mark_static",
    "mark_static_address", "maybe_mark_dynamic", "reset",
]  # fmt: skip
