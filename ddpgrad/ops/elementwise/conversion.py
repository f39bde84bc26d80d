"""Conversions of dtype and device."""

from __future__ import annotations

from typing import Any

from ...backend import device as devices
from ...backend import dtype as dtypes
from ...backend.layout import order_of_images
from ...backend.registry import backend_of
from ...core.tensor import Tensor
from ..dispatch.declare import primitive
from ..dispatch.tensor_function import tensor_function
from . import unary


@primitive(
    grads={"input": lambda F, g, device, source: F.move(g, source, device)},
    method=False,
    grad_name="ToCopyBackward0",
)
def move(F: Any, input: Tensor, device: Any, source: Any, non_blocking: bool = False) -> Tensor:
    """On another device; the gradient comes back. non_blocking: page-locked memory may be read by a GPU later on."""
    ...


def wide(input: Tensor) -> Tensor:
    """In float32 if its type is a float of 16 bits: for what takes several ops, and is rounded once at the end."""
    kind = input.dtype
    return to_dtype(input, dtypes.float32) if kind.itemsize == 2 and kind.category == 2 else input


@tensor_function()
def to(
    input: Tensor,
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """On `device` and in `dtype` (either may be left out, or taken from another tensor); itself if nothing changes."""
    flags = [arg for arg in args if isinstance(arg, bool)]  # non_blocking and copy by position
    non_blocking, copy = non_blocking or any(flags[:1]), copy or any(flags[1:])
    for arg in args:
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, bool):
            pass
        elif isinstance(arg, (str, devices.Device, int)):
            device = arg
        elif arg is not None:
            if dtype is not None:
                raise TypeError(
                    f"to() received an invalid combination of arguments - two dtypes, {dtype} and {arg}"
                )
            dtype = arg
    out = input
    if device is not None:
        target = devices.of(device)
        if target != input.device:
            backend_of(target.type)  # loads it, or says why not
            out = move(out, target, input.device, non_blocking)
    if dtype is not None and dtypes.of(dtype) is not out.dtype:
        out = to_dtype(out, dtypes.of(dtype))
    if memory_format is not None and memory_format.order is not None:
        dims = memory_format.order(out.ndim)
        if memory_format.rank is None:
            placed = out._array.flags.c_contiguous
        else:
            placed = order_of_images(out._array) == dims
        if not placed:
            return unary.clone(out, memory_format)
    return unary.clone(out) if copy and out is input else out


def to_dtype(input: Tensor, dtype: dtypes.DType) -> Tensor:
    """In another dtype."""
    if dtype.category < 2 and input._requires_grad:  # no gradient passes through integers
        input = input.detach()
    return unary.cast(input, dtype)


@tensor_function()
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """In the dtype of `other`."""
    return to(input, other.dtype)
