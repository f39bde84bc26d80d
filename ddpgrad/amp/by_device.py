"""The base of `torch.cuda.amp` and `torch.cpu.amp`: former names, which imply the device."""

from __future__ import annotations

import warnings
from typing import ClassVar

from ..backend.dtype import DType
from .autocast_mode import autocast
from .grad_scaler import GradScaler


def deprecated(device: str, name: str, argument: str) -> None:
    """Warn the caller's caller that `torch.amp`'s `name`, with one more argument, is to be used."""
    warnings.warn(
        f"`torch.{device}.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}({argument})` instead.",
        FutureWarning,
        stacklevel=3,
    )


class AutocastOfDevice(autocast):
    """`torch.amp.autocast(device, ...)`, whose default dtype is the device's first one, whatever is set."""

    _kind: ClassVar[str]
    _usual: ClassVar[DType]

    def __init__(self, enabled: bool = True, dtype: DType | None = None, cache_enabled: bool = True) -> None:
        deprecated(self._kind, "autocast", f"'{self._kind}', args...")
        super().__init__(self._kind, dtype or self._usual, enabled, cache_enabled)


class GradScalerOfDevice(GradScaler):
    """`torch.amp.GradScaler(device, ...)`."""

    _kind: ClassVar[str]

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        deprecated(self._kind, "GradScaler", f"'{self._kind}', args...")
        super().__init__(self._kind, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
