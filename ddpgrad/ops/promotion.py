"""Brings the arguments of an op to one dtype, by PyTorch's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._tensor import Tensor, wrap
from ..backend import dtype as dtypes
from ..backend.registry import backend_for, to_device
from .explain import different_devices

if TYPE_CHECKING:
    from .declare import Op


def promote(op: Op, given: Sequence[Any], raw: list[Any]) -> dtypes.DType:
    """Replace the tensor arguments in `raw` by arrays of the common dtype, which is returned; numbers stay numbers.

    given: the tensor arguments as the user passed them. `op.promotion` is "same" (the common
    type) or "float" (integers become the default floating-point type).
    """
    tensors: list[tuple[np.dtype[Any], int]] = []
    scalars: list[int] = []
    values = [_operand(op, v) for v in (raw[0] if op.sequence else [raw[i] for i in op.promoted])]
    if len({v._array.__class__ for v in values if isinstance(v, Tensor)}) > 1:
        values = _beside_each_other(op, values)
    for place, value in enumerate(values):
        if isinstance(value, Tensor):
            array = value._array
            tensors.append((array.dtype, array.ndim))
        elif value is not None or op.sequence or op.defaults[op.promoted[place]] is not None:
            scalars.append(_category(op, value))
    if not tensors:
        names = ", ".join(type(v).__name__ for v in values)
        raise TypeError(f"{op.name}(): at least one argument must be a Tensor, got {names}")
    dtype = dtypes.result_type(tensors, scalars)
    if op.promotion == "float" and dtype.category < 2:
        dtype = dtypes.get_default_dtype()
    converted = [_convert(value, dtype) for value in values]
    if op.sequence:
        raw[0] = converted
        return dtype
    for i, value in zip(op.promoted, converted, strict=True):
        raw[i] = value
    for i in op.tensors:
        if isinstance(raw[i], Tensor):
            raw[i] = raw[i]._array
    return dtype


def _operand(op: Op, value: Any) -> Any:
    """`value`, or the constant tensor that a NumPy array stands for."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype not in dtypes.BY_NUMPY:
        raise TypeError(f"{op.name}(): no tensor can hold a NumPy array of dtype {value.dtype}")
    return wrap(np.asarray(value))


def _category(op: Op, value: Any) -> int:
    try:
        return dtypes.scalar_category(value)
    except TypeError as error:
        raise TypeError(f"{op.name}(): {error}") from None


def _convert(value: Any, dtype: dtypes.DType) -> Any:
    if isinstance(value, Tensor):
        return value._array.astype(dtype.numpy, copy=False)
    if isinstance(value, np.generic):
        return value.item()
    return value


def _beside_each_other(op: Op, values: Sequence[Any]) -> list[Any]:
    """0-dimensional tensors of the CPU go to the GPU where the others are, as numbers do; no other mixture is let."""
    arrays = [v._array for v in values if isinstance(v, Tensor)]
    on_gpu = next((a for a in arrays if backend_for(a).kind != "cpu"), None)
    joined: list[Any] = []
    for value in values:
        if on_gpu is not None and isinstance(value, Tensor) and backend_for(value._array).kind == "cpu":
            if value.ndim or value._requires_grad:
                raise different_devices(op.name, arrays)
            value = wrap(to_device(value._array, backend_for(on_gpu).device_of(on_gpu)))
        joined.append(value)
    return joined
