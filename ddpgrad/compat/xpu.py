"""`torch.xpu`: Intel's GPUs, which are not supported."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def empty_cache() -> None:
    """Nothing: there is no such memory."""


def manual_seed_all(seed: int) -> None:
    """Nothing: there is no generator there."""


__all__ = ["device_count", "empty_cache", "is_available", "manual_seed_all"]
