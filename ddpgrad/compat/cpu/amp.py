"""`torch.cpu.amp`: mixed precision on a CPU, by its former names."""

from __future__ import annotations

from ...amp.by_device import AutocastOfDevice, GradScalerOfDevice
from ...backend.dtype import bfloat16

__path__: list[str] = []  # PyTorch has a package here: its modules are other names of this one


class autocast(AutocastOfDevice):
    """`torch.amp.autocast("cpu", ...)`."""

    _kind, _usual = "cpu", bfloat16


class GradScaler(GradScalerOfDevice):
    """`torch.amp.GradScaler("cpu", ...)`."""

    _kind = "cpu"


__all__ = ["GradScaler", "autocast"]
