"""`torch.accelerator`: the GPU of any make. Here that is CUDA's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .. import cuda
from ..backend.device import Device
from ..cuda.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)  # fmt: skip
from . import cpu

get_memory_info = mem_get_info
device_index = cuda.device


def is_available() -> bool:
    """True when there is a GPU that can be used."""
    return cuda.is_available()


def device_count() -> int:
    """The number of GPUs."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The kind of GPU, without an index; None without one."""
    return Device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """The index of this rank's current GPU."""
    return cuda.current_device()


def set_device_index(device: Any) -> None:
    """`torch.cuda.set_device`."""
    cuda.set_device(device)


current_device_idx, set_device_idx = current_device_index, set_device_index


def synchronize(device: Any = None) -> None:
    """`torch.cuda.synchronize`."""
    cuda.synchronize(device)


def current_stream(device: Any = None) -> cuda.Stream:
    """`torch.cuda.current_stream`."""
    return cuda.current_stream(device)


def set_stream(stream: cuda.Stream) -> None:
    """`torch.cuda.set_stream`."""
    cuda.set_stream(stream)


def get_device_module(device: Any = None) -> ModuleType:
    """The module of a kind of device, `torch.cuda` or `torch.cpu`; without an argument, of the GPU if there is one."""
    kind = current_accelerator() or "cpu" if device is None else device
    return cuda if Device(kind).type == "cuda" else cpu


__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index",
    "empty_cache", "get_device_module", "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
    "set_device_idx", "set_device_index", "set_stream", "synchronize",
]  # fmt: skip
