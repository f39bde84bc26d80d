"""`torch.xpu`: Intel's GPUs, which are not supported."""

from __future__ import annotations

from .mps import device_count, empty_cache, is_available
from .mps import manual_seed as manual_seed_all

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed_all"]
