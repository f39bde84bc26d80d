"""The launcher: `ddprun` starts and watches ranks; `Checkpointer` commits their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint import Checkpointer as Checkpointer
    from .preemption import Preempted as Preempted
    from .pulse import alive as alive
    from .wrap import prepare as prepare
    from .wrap import wrap as wrap

__all__ = ["Checkpointer", "Preempted", "alive", "prepare", "wrap"]

_HOMES = {
    "Checkpointer": "checkpoint",
    "Preempted": "preemption",
    "alive": "pulse",
    "prepare": "wrap",
    "wrap": "wrap",
}


def __getattr__(name: str) -> Any:
    # Starting ranks needs no tensors, so `ddprun` does not load what checkpoints need.
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
