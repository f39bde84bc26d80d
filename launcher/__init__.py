"""The launcher: `ddprun` starts and watches ranks; `setup` deals out the work; `Checkpointer` commits its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint import Checkpointer as Checkpointer
    from .preemption import Preempted as Preempted
    from .pulse import alive as alive
    from .shared_loop import prepare as prepare
    from .shared_loop import setup as setup

__all__ = ["Checkpointer", "Preempted", "alive", "prepare", "setup"]

_HOMES = {
    "Checkpointer": "checkpoint",
    "Preempted": "preemption",
    "alive": "pulse",
    "prepare": "shared_loop",
    "setup": "shared_loop",
}


def __getattr__(name: str) -> Any:
    # Starting ranks needs no tensors, so `ddprun` does not load what checkpoints need.
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
