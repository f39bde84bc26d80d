"""Brings the arguments of an op to one dtype, by PyTorch's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import dtype as dtypes
from ..backend.registry import backend_for
from ..errors import DeviceError
from ..tensor import Tensor

if TYPE_CHECKING:
    from .declare import Op


def promote(op: Op, given: Sequence[Any], raw: list[Any]) -> None:
    """Replace the tensor arguments in `raw` by arrays of the common dtype; numbers stay numbers.

    given: the tensor arguments as the user passed them. `op.promotion` is "same" (the common
    type) or "float" (integers become the default floating-point type).
    """
    tensors: list[tuple[np.dtype[Any], int]] = []
    scalars: list[int] = []
    arrays: list[Any] = []
    values = list(raw[0]) if op.sequence else [raw[i] for i in op.promoted]
    for value in values:
        if isinstance(value, Tensor):
            array = value._array
            tensors.append((array.dtype, array.ndim))
            arrays.append(array)
        elif value is not None:
            scalars.append(dtypes.scalar_category(value))
    if not tensors:
        names = ", ".join(type(v).__name__ for v in values)
        raise TypeError(f"{op.name}(): at least one argument must be a Tensor, got {names}")
    for array in arrays:
        if array.__class__ is not arrays[0].__class__:
            _other_device(op, arrays)
    dtype = dtypes.result_type(tensors, scalars)
    if op.promotion == "float" and dtype.category < 2:
        dtype = dtypes.get_default_dtype()
    converted = [_convert(value, dtype) for value in values]
    if op.sequence:
        raw[0] = converted
        return
    for i, value in zip(op.promoted, converted, strict=True):
        raw[i] = value
    for i in op.tensors:
        if isinstance(raw[i], Tensor):
            raw[i] = raw[i]._array


def _convert(value: Any, dtype: dtypes.DType) -> Any:
    if isinstance(value, Tensor):
        return value._array.astype(dtype.numpy, copy=False)
    if isinstance(value, np.generic):
        return value.item()
    return value


def _other_device(op: Op, arrays: Sequence[Any]) -> None:
    devices = sorted({str(backend_for(a).device_of(a)) for a in arrays})
    raise DeviceError(
        f"{op.name}(): expected all tensors to be on the same device, but found at least two devices, "
        f"{' and '.join(devices)}. Move them with Tensor.to(device) first."
    )
