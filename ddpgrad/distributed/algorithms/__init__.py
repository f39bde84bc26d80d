"""Policies on top of the collectives, under the names that PyTorch gives them."""

from __future__ import annotations

from . import ddp_comm_hooks

__all__ = ["ddp_comm_hooks"]
