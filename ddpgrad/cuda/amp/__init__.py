"""`torch.cuda.amp`: mixed precision on a GPU, by its former names."""

from __future__ import annotations

from typing import Any

from ... import amp as _amp
from ...amp.by_device import AutocastOfDevice, GradScalerOfDevice, deprecated
from ...backend.dtype import DType, float16
from ..devices import is_available


class autocast(AutocastOfDevice):
    """`torch.amp.autocast("cuda", ...)`."""

    _kind, _usual = "cuda", float16


class GradScaler(GradScalerOfDevice):
    """`torch.amp.GradScaler("cuda", ...)`."""

    _kind = "cuda"


def custom_fwd(fwd: Any = None, *, cast_inputs: DType | None = None) -> Any:
    """`torch.amp.custom_fwd(..., device_type="cuda")`."""
    deprecated("cuda", "custom_fwd", "args..., device_type='cuda'")
    return _amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any = None) -> Any:
    """`torch.amp.custom_bwd(..., device_type="cuda")`."""
    deprecated("cuda", "custom_bwd", "args..., device_type='cuda'")
    return _amp.custom_bwd(bwd, device_type="cuda")


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU to scale losses for."""
    return not is_available()


__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]
