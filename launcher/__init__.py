"""The launcher: `ddprun` starts and watches ranks; `Checkpointer` commits their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint import Checkpointer as Checkpointer

__all__ = ["Checkpointer"]


def __getattr__(name: str) -> Any:
    # Starting ranks needs no tensors, so `ddprun` does not load what checkpoints need.
    if name == "Checkpointer":
        from .checkpoint import Checkpointer

        return Checkpointer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
