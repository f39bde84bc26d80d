"""Utilities: data loading, and checkpoints that trade computation for memory."""

from __future__ import annotations

from . import checkpoint, data, dlpack, hooks

__all__ = ["checkpoint", "data", "dlpack", "hooks"]
