"""`torch.cpu.amp`: mixed precision on a CPU, by its former names."""

from __future__ import annotations

import warnings

from .. import amp as _amp
from ..backend.dtype import DType, bfloat16


def _deprecated(old: str, new: str) -> None:
    warnings.warn(
        f"`torch.cpu.amp.{old}` is deprecated. Please use `torch.amp.{new}` instead.", FutureWarning, 3
    )


class autocast(_amp.autocast):
    """`torch.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True) -> None:
        _deprecated("autocast(args...)", "autocast('cpu', args...)")
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(_amp.GradScaler):
    """`torch.amp.GradScaler("cpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _deprecated("GradScaler(args...)", "GradScaler('cpu', args...)")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


__all__ = ["GradScaler", "autocast"]
