"""`torch.cpu`: the CPU as a device with streams, which never have to be waited for."""

from __future__ import annotations

from typing import Any

from . import amp


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1: all cores are one device."""
    return 1


def current_device() -> str:
    """'cpu'."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one CPU."""


def synchronize(device: Any = None) -> None:
    """Nothing: ops on the CPU are done when they return."""


__all__ = ["amp", "current_device", "device_count", "is_available", "set_device", "synchronize"]
