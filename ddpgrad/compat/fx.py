"""`torch.fx`: no program is captured as a graph here, so nothing is traced or rewritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import absent

__path__: list[str] = []  # absent modules are found below

PART = absent.Part(
    "programs are not captured as graphs here; they run as they are",
    "Graph GraphModule Interpreter Node Proxy Tracer Transformer map_arg replace_pattern symbolic_trace",
)
globals().update(absent.stand_ins("fx", PART))
__getattr__ = absent.looks_below(__name__)


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """The function itself, or the name: what it marks for a tracer is called as it is."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    return fn_or_name
