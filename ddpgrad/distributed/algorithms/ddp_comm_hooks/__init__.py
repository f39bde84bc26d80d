"""Communication hooks for `DistributedDataParallel.register_comm_hook`."""

from __future__ import annotations

from . import default_hooks, powerSGD_hook

__all__ = ["default_hooks", "powerSGD_hook"]
