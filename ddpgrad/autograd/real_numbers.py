"""Tensors as real numbers in double precision on the host, and back: what `gradcheck` compares."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend.registry import backend_for, to_device
from ..core.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]


def real_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape as real numbers: a complex one is a pair."""
    shape = tensor._array.shape
    return (*shape, 2) if tensor.is_complex() else shape


def host(tensor: Tensor | None, shaped: Tensor) -> Array:
    """The values as real numbers in double precision on the CPU; zeros for None."""
    if tensor is None:
        return np.zeros(real_shape(shaped))
    backend = backend_for(tensor._array)
    array = tensor._array if backend.kind == "cpu" else backend.to_host(tensor._array)
    if tensor.is_complex():
        return np.ascontiguousarray(array, dtype=np.complex128).reshape(*array.shape, 1).view(np.float64)
    return np.asarray(array, dtype=np.float64)


def like(tensor: Tensor, values: Array) -> Tensor:
    """Real numbers in the dtype and on the device of `tensor`."""
    if tensor.is_complex():
        values = np.ascontiguousarray(values).view(np.complex128)[..., 0]
    return wrap(to_device(values.astype(tensor._array.dtype), tensor.device))
