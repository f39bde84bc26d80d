"""DLPack: memory shared with other libraries, through capsules that describe it.

NumPy and CuPy make and read the capsules. They have no bfloat16: it goes through them as 16-bit integers, and the
description in the capsule is set right. Source: https://dmlc.github.io/dlpack/latest/
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...backend.device import Device
from ...core.overrides import overridable
from ...core.size import strided
from ...core.tensor import Tensor, wrap


class DLDeviceType(IntEnum):
    """The kinds of devices, by DLPack's numbers."""

    kDLCPU, kDLCUDA, kDLCUDAHost, kDLOpenCL = 1, 2, 3, 4
    kDLVulkan, kDLMetal, kDLVPI, kDLROCM, kDLROCMHost, kDLExtDev = 7, 8, 9, 10, 11, 12
    kDLCUDAManaged, kDLOneAPI = 13, 14


# Where the description of the array, a DLTensor, begins in the struct that a capsule of each name points to, and
# where in it the kind of device, and the kind and width of elements, stand.
_BEGINS = {b"dltensor": 0, b"dltensor_versioned": 32}
_DEVICE, _DTYPE = 8, 20
_UINT16, _BFLOAT16 = (1, 16), (4, 16)

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _described(capsule: Any) -> tuple[int, Any]:
    """(the kind of device, the kind and width of elements, to be read and written) of a capsule."""
    name = _name_of(capsule) if type(capsule).__name__ == "PyCapsule" else None
    if name not in _BEGINS:
        raise RuntimeError(
            "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might "
            f"have already constructed a tensor from it once. (expected one named {' or '.join(map(repr, _BEGINS))}, or "
            f"an object with __dlpack__; got {type(capsule).__name__} {name or ''})"
        )
    address = _pointer_of(capsule, name) + _BEGINS[name]
    return ctypes.c_int32.from_address(address + _DEVICE).value, (ctypes.c_uint8 * 2).from_address(
        address + _DTYPE
    )


def export(
    tensor: Tensor,
    stream: Any = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """`Tensor.__dlpack__`."""
    if tensor._requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_meta:
        raise BufferError("Cannot pack tensors on meta")
    if tensor.layout is not strided:
        raise BufferError("Can't export tensors with layout other than torch.strided")
    options: dict[str, Any] = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
    options = {name: value for name, value in options.items() if value is not None}
    if tensor.is_cuda:
        options["stream"] = stream
    elif stream not in (None, -1):
        raise AssertionError("stream should be None on cpu.")
    array = tensor._array
    if tensor.dtype is not dtypes.bfloat16:
        return array.__dlpack__(**options)
    capsule = array.view(np.uint16).__dlpack__(**options)
    _described(capsule)[1][:] = _BFLOAT16
    return capsule


@overridable
def to_dlpack(tensor: Tensor) -> Any:
    """A capsule on the memory of `tensor`, to be used once by another library."""
    return export(tensor)


class _Capsule:
    """A capsule as an array that can be asked for it, which is what NumPy and CuPy take."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array, or of a capsule from `__dlpack__` or `to_dlpack`.

    device: moved there, which is a copy. copy: True for memory of its own; False for an error where that is needed.
    RuntimeError for what is no capsule and has none, and for one that was used before. Source: torch.from_dlpack.
    """
    if isinstance(ext_tensor, Tensor) and (ext_tensor._requires_grad or ext_tensor.is_meta):
        export(ext_tensor)  # which refuses it
    out: Any = ext_tensor.detach() if isinstance(ext_tensor, Tensor) else _received(ext_tensor)
    if device is not None and out.device != Device(device):
        if copy is False:
            raise ValueError(
                f"cannot move (i.e. copy=False) tensor from {out.device} to {device} without copying."
            )
        return out.to(device)
    return out.clone() if copy else out


def _received(source: Any) -> Tensor:
    capsule = source
    if hasattr(source, "__dlpack__"):
        try:
            capsule = source.__dlpack__(max_version=(1, 0))
        except TypeError:  # made before versions were asked for
            capsule = source.__dlpack__()
    kind, elements = _described(capsule)
    is_bfloat16 = tuple(elements) == _BFLOAT16
    if is_bfloat16:
        elements[:] = _UINT16
    if kind in (DLDeviceType.kDLCPU, DLDeviceType.kDLCUDAHost):
        array = _writable(np.from_dlpack(_Capsule(capsule, (1, 0))), source)
    else:
        from ...backend.cuda.library import cupy_and_count

        cupy, _ = cupy_and_count()
        array = cupy.from_dlpack(_Capsule(capsule, (kind, 0)))
    return wrap(array.view(dtypes.bfloat16.numpy) if is_bfloat16 else array)


def _writable(array: np.ndarray, source: Any) -> np.ndarray:
    """The memory of an array that NumPy takes for read-only, as it does where the first DLPack protocol cannot say."""
    if array.flags.writeable or not array.size or isinstance(source, np.ndarray):
        return array
    span = sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) + array.itemsize
    memory: Any = (ctypes.c_char * span).from_address(array.__array_interface__["data"][0])
    memory.owner = array
    return np.ndarray(array.shape, array.dtype, memoryview(memory), 0, array.strides)
