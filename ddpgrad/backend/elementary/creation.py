"""New arrays, and arrays on other devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ..device import Device
from ..dtype import numpy_of
from ..registry import backend_of, to_device

Array = Any


def creation(xp: ModuleType) -> dict[str, Any]:
    def full(shape: Sequence[int], value: Any, dtype: Any, like: Any = None) -> Array:
        """like: an array on the device where the new one is to be, of which a host may have several."""
        return xp.full(shape, value, dtype=numpy_of(dtype))

    def empty(shape: Sequence[int], dtype: Any) -> Array:
        return xp.empty(shape, dtype=numpy_of(dtype))

    def full_like(input: Array, value: Any) -> Array:
        return xp.full(input.shape, value, dtype=input.dtype)

    def new_zeros(input: Array, shape: Sequence[int]) -> Array:
        return xp.zeros(shape, dtype=input.dtype)

    def asarray(data: Any, dtype: Any = None, like: Any = None) -> Array:
        return xp.asarray(data, dtype=None if dtype is None else numpy_of(dtype))

    def move(input: Array, device: Device, source: Device, non_blocking: bool = False) -> Array:
        if non_blocking and source.type == "cpu" and device.type == "cuda":
            return backend_of("cuda").from_page_locked(input, device)
        return to_device(input, device)

    def on(device: Device, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args), whose new arrays are on `device`."""
        return function(*args)

    return {
        "full": full, "empty": empty, "full_like": full_like, "new_zeros": new_zeros, "asarray": asarray,
        "move": move, "on": on,
    }  # fmt: skip
