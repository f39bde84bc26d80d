"""`torch._prims_common`: what dtypes are, and shapes and steps of tensors, as PyTorch's tests and libraries ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend import dtype as dtypes
from ..backend.device import Device
from ..backend.dtype import DType
from ..core.size import MemoryFormat, channels_last, channels_last_3d, contiguous_format
from ..core.tensor import Size, Tensor

DeviceLikeType = str | Device | int
DimsType = int | list[int] | tuple[int, ...]
Number = bool | int | float | complex
NumberType = bool | int | float | complex
ShapeType = Size | list[int] | tuple[int, ...]
StrideType = list[int] | tuple[int, ...]
TensorLike = Tensor
TensorLikeType = Tensor

_REAL = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
_COMPLEX = {dtypes.bfloat16: dtypes.complex64, **{real: kind for kind, real in _REAL.items()}}
_HALF = (dtypes.float16, dtypes.bfloat16)
_TYPES = (bool, int, float, complex)


def is_boolean_dtype(dtype: DType) -> bool:
    return dtype.category == 0


def is_integer_dtype(dtype: DType) -> bool:
    return dtype.category == 1


def is_float_dtype(dtype: DType) -> bool:
    return dtype.is_floating_point


def is_complex_dtype(dtype: DType) -> bool:
    return dtype.is_complex


def is_low_precision_dtype(dtype: DType) -> bool:
    """Of 16 bits."""
    return dtype in _HALF


def is_grad_dtype(dtype: DType) -> bool:
    """Whether tensors of it may require a gradient."""
    return dtype.is_floating_point or dtype.is_complex


def corresponding_real_dtype(dtype: DType) -> DType:
    """The type of the parts of a complex type; KeyError for others."""
    return _REAL[dtype]


def corresponding_complex_dtype(dtype: DType) -> DType:
    """The type whose parts are of a real type, or of one that holds it; KeyError where there is none."""
    return _COMPLEX[dtype]


def get_computation_dtype(dtype: DType) -> DType:
    """The type that sums of it are computed in: float32 for 16 bits, else itself."""
    return dtypes.float32 if dtype in _HALF else dtype


def dtype_to_type(dtype: DType) -> type:
    """Python's type of its elements."""
    return _TYPES[dtype.category]


def type_to_dtype(typ: type) -> DType:
    """The dtype of a tensor of such numbers."""
    if typ is bool:
        return dtypes.bool_
    if typ is int:
        return dtypes.int64
    if typ is float:
        return dtypes.get_default_dtype()
    if typ is complex:
        return corresponding_complex_dtype(dtypes.get_default_dtype())
    raise ValueError(f"Invalid type {typ}!")


def dtype_or_default(dtype: DType | None) -> DType:
    """`dtype`, or the default one for None."""
    return dtypes.get_default_dtype() if dtype is None else dtype


def canonicalize_dim(rank: int, idx: int, wrap_scalar: bool = True) -> int:
    """The dimension counted from the first one; IndexError if there is none. A scalar counts as of one dimension."""
    if rank < 0:
        raise IndexError(f"Rank cannot be negative but got {rank}")
    if rank == 0:
        if not wrap_scalar:
            raise IndexError(f"Dimension specified as {idx} but tensor has no dimensions")
        rank = 1
    if not -rank <= idx < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {idx})"
        )
    return idx % rank


def canonicalize_dims(rank: int, indices: Any, wrap_scalar: bool = True) -> Any:
    """One dimension, or a tuple of them, counted from the first one."""
    if isinstance(indices, int):
        return canonicalize_dim(rank, indices, wrap_scalar)
    return tuple(canonicalize_dim(rank, i, wrap_scalar) for i in indices)


def is_same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    return tuple(a) == tuple(b)


def is_contiguous(a: Tensor) -> bool:
    """Whether the elements lie in memory one after the other, row by row."""
    return a.is_contiguous()


def is_cpu_scalar_tensor(a: Any) -> bool:
    return isinstance(a, Tensor) and a.ndim == 0 and a.is_cpu


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """The steps of a tensor of that shape, row by row; or with the last two dimensions the other way round."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    steps = tuple(reversed(strides))
    if row_major or len(shape) < 2:
        return steps
    return (*steps[:-2], 1, max(shape[-2], 1))


def is_contiguous_or_false(a: Tensor) -> bool:
    return a.is_contiguous()


def suggest_memory_format(x: Tensor) -> MemoryFormat:
    """channels_last or channels_last_3d for what lies channel by channel within each place, else contiguous_format."""
    formats = {4: channels_last, 5: channels_last_3d}
    if x.ndim not in formats or x.stride(1) == 0:
        return contiguous_format
    least = 0
    for d in (1, *range(x.ndim - 1, 1, -1), 0):
        # Where the batch's step is that of the channels, as for one channel, it is rather row by row.
        if x.shape[d] == 0 or x.stride(d) < least or (d == 0 and least == x.stride(1)):
            return contiguous_format
        least = x.stride(d) * max(x.shape[d], 1)
    return formats[x.ndim]
