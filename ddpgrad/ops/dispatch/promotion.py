"""Brings the arguments of an op to one dtype, by PyTorch's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import dtype as dtypes
from ...backend.layout import in_own_order
from ...backend.registry import backend_for, constant_on, is_on_gpu
from ...core.modes import recorders
from ...core.tensor import Tensor, wrap
from .explain import different_devices, require_tensors
from .half import DIGITS_KEPT

if TYPE_CHECKING:
    from .declare import Op


_PLAIN = frozenset((float, int, type(None)))
"""Classes of arguments that do not change the dtype of floating-point tensors."""

_FLOATS = "efd" + dtypes.bfloat16.numpy.char
_INT64 = np.dtype(np.int64).char
_TOP = 1 << 63


def _changes_int64(value: Any) -> bool:
    """Whether a plain number beside tensors of int64 makes the result another, or does not fit."""
    return value.__class__ is float or (value.__class__ is int and not -_TOP <= value < _TOP)


_FACTORS = frozenset((*DIGITS_KEPT, "div_floor", "div_trunc"))
"""Ops of two tensors that take one number beside 16-bit floats in float32."""

_CAST_ON_GPU = frozenset(("add", "sub"))
"""Ops whose kernels on a GPU read 16-bit floats beside float32 as they are, and whose rules keep none of them."""


def _is_half_on_gpu(value: Any) -> bool:
    array = value._array if isinstance(value, Tensor) else None
    return array is not None and array.dtype in dtypes.NARROW and is_on_gpu(array)


_OF_NUMBERS = frozenset(("add", "sub", "mul", "div", "floor_divide", "div_floor", "div_trunc"))
"""Ops that may be given Python numbers only."""


def promotion_of(op: Op) -> Callable[[Sequence[Any], list[Any]], dtypes.DType]:
    """`promote` for `op`, which tries the usual case first: floats, or int64, of one dtype and array type, beside plain numbers.

    Then the tensors in `raw` become their arrays and the dtype is returned, without more questions.
    """
    if op.sequence:
        return _promotion_of_list(op)
    tensors, promoted = op.tensors, op.promoted
    others = [i for i in tensors if i not in promoted]
    only_tensors = {i for i in promoted if i not in op.numbers}
    usual = _FLOATS if op.promotion == "float" else _FLOATS + _INT64

    def promotion(given: Sequence[Any], raw: list[Any]) -> dtypes.DType:
        kind = dtype = None
        for i in promoted:
            value = raw[i]
            if value.__class__ in _PLAIN and i not in only_tensors:
                continue
            array = getattr(value, "_array", None)
            if array is not None:
                if dtype is None:
                    kind, dtype = array.__class__, array.dtype
                if array.dtype is dtype and array.__class__ is kind and dtype.char in usual:
                    raw[i] = array
                    continue
            dtype = None
            break
        if dtype is None or (dtype.char == _INT64 and any(map(_changes_int64, raw))):
            for i, value in zip(tensors, given):  # noqa: B905 - `strict` takes time
                raw[i] = value
            return promote(op, given, raw)
        for i in others:
            if isinstance(raw[i], Tensor):
                raw[i] = raw[i]._array
        return dtypes.BY_NUMPY[dtype]

    return promotion


def _promotion_of_list(op: Op) -> Callable[[Sequence[Any], list[Any]], dtypes.DType]:
    """`promotion_of` an op of a list of tensors."""
    usual = _FLOATS if op.promotion == "float" else _FLOATS + _INT64

    def promotion(given: Sequence[Any], raw: list[Any]) -> dtypes.DType:
        arrays = [t._array for t in given if isinstance(t, Tensor)]
        kind, dtype = arrays[0].__class__, arrays[0].dtype
        for array in arrays:
            if array.dtype is not dtype or array.__class__ is not kind or dtype.char not in usual:
                return promote(op, given, raw)
        if len(arrays) < len(given):
            return promote(op, given, raw)
        raw[0] = arrays
        return dtypes.BY_NUMPY[dtype]

    return promotion


def promote(op: Op, given: Sequence[Any], raw: list[Any]) -> dtypes.DType:
    """Replace the tensor arguments in `raw` by arrays of the common dtype, which is returned; numbers stay numbers.

    given: the tensor arguments as the user passed them. `op.promotion` is "same" (the common
    type), "ordered" (the same, and complex numbers are refused) or "float" (integers become the
    default floating-point type).
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
    if op.numbers != op.tensors and not op.sequence:
        require_tensors(op, raw)
    if not tensors and op.name in _OF_NUMBERS:
        raw[:] = [wrap(np.asarray(v, dtypes.result_type([], [_category(op, v)]).numpy)) for v in raw]
        return promote(op, given, raw)
    if not tensors:
        names = ", ".join(type(v).__name__ for v in values)
        raise TypeError(f"{op.name}(): at least one argument must be a Tensor, got {names}")
    dtype = dtypes.result_type(tensors, scalars)
    if op.promotion == "float" and dtype.category < 2:
        dtype = dtypes.get_default_dtype()
    if op.promotion == "ordered" and dtype.category == 3:
        raise NotImplementedError(
            f"{op.name}(): not implemented for '{dtype.scalar_type}': complex numbers have no order"
        )
    kernel_casts = dtype is dtypes.float32 and op.name in _CAST_ON_GPU and not op.sequence
    converted = [
        value._array if kernel_casts and _is_half_on_gpu(value) else _convert(value, dtype)
        for value in values
    ]
    if op.sequence:
        raw[0] = converted
        return dtype
    if (
        len(tensors) == 2
        and tensors[1][0] is not dtype.numpy
        and op.name in _FACTORS
        and dtype.numpy in dtypes.NARROW
    ):
        array = values[1]._array
        if isinstance(array, np.ndarray) and array.size == 1 and array.ndim <= tensors[0][1]:
            # One number in the CPU's memory counts as a Python number does: these bits would round it.
            converted[1] = _convert(values[1], dtypes.float32)
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
        array, kind = value._array, dtype.numpy
        if array.dtype != kind:
            array = array.astype(kind) if 0 not in array.strides else in_own_order(array, kind)
        if recorders and array is not value._array:
            recorders[0].on_write(array, None, value._array)
        return array
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.category == 1 and isinstance(value, int):
        # What does not fit wraps around; NumPy would refuse it.
        return int(np.asarray(value).astype(dtype.numpy))
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
            value = wrap(constant_on(value._array, backend_for(on_gpu).device_of(on_gpu)))
        joined.append(value)
    return joined
