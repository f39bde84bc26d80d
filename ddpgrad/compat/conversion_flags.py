"""`torch.__future__`: whether `Module.to` and its like make new parameters."""

from __future__ import annotations

from ..nn.modules import conversion


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether converting a module gives it new parameters, instead of changing those that it has."""
    conversion.flags.get().overwrite = bool(value)


def get_overwrite_module_params_on_conversion() -> bool:
    """See the function that sets it."""
    return conversion.flags.get().overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Remembered only: parameters stay the same objects here in any case, as they do in PyTorch with this."""
    conversion.flags.get().swap = bool(value)


def get_swap_module_params_on_conversion() -> bool:
    """See the function that sets it."""
    return conversion.flags.get().swap
