"""The elementary kernels for which CuPy differs from NumPy, and the way between host and GPU.

Names and arguments are those of `backend/elementary`. What CuPy lacks for bfloat16 is
here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np
from cupyx.scipy import special  # pyright: ignore[reportMissingImports]

from ...core.errors import CaptureError
from ..device import Device, capturing, current_cuda
from ..dtype import bfloat16, numpy_of
from ..registry import backend_of
from . import own_gpu, pinned
from .capture import NOT_FROM_HOST, constant
from .library import check_index, copied_from_host, use_current

Array = Any

_BFLOAT16 = bfloat16.numpy
# cupy.where has no loop for bfloat16.
_where = cupy.ElementwiseKernel(
    "bool condition, T input, T other", "T out", "out = condition ? input : other", "ddpgrad_where"
)


def differences() -> dict[str, Callable[..., Any]]:
    """Kernel name -> function."""
    return {
        "argsort": argsort, "asarray": asarray, "clamp": clamp, "erf": erf, "from_host": from_host,
        "from_page_locked": from_page_locked, "nonzero": nonzero, "on": on,
        "to_host": to_host, "to_other_gpu": to_other_gpu, "tril": tril, "triu": triu, "where": where,
        **{name: _on_host(name) for name in ("airy_ai", "ldl_factor", "ldl_solve")},
        **{name: _logical(getattr(cupy, name)) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")},
    }  # fmt: skip


def from_host(array: np.ndarray, device: Device) -> Array:
    """A copy of a host array on a GPU, which later work finds complete, on other streams too. `CaptureError` while a graph is captured."""
    if capturing.now is not None:
        raise CaptureError(NOT_FROM_HOST)
    return on(device, lambda: copied_from_host(cupy.array(array)))


def from_page_locked(array: np.ndarray, device: Device) -> Array:
    """As `from_host`; where the array lies in page-locked memory, the GPU reads it there when its turn comes."""
    direct = capturing.now is None and array.flags.c_contiguous and pinned.is_page_locked(array)
    return on(device, pinned.sent, array) if direct else from_host(array, device)


def asarray(data: Any, dtype: Any = None, like: Any = None) -> Array:
    """The array itself, or numbers and arrays of the host on the current GPU, which are constants for a captured graph."""
    dtype = None if dtype is None else numpy_of(dtype)
    if isinstance(data, cupy.ndarray):
        return cupy.asarray(data, dtype=dtype)
    if capturing.now is None:
        return copied_from_host(cupy.asarray(data, dtype=dtype))
    return constant(np.asarray(data, dtype))


def on(device: Device, function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), whose new arrays are on `device`, by default this rank's current GPU."""
    use_current()
    index = device.index
    if index is None or index == cupy.cuda.runtime.getDevice():
        return function(*args)
    check_index(index)
    return own_gpu.on(index, function, *args)


def to_other_gpu(array: Array, device: Device) -> Array:
    """A copy on another GPU, which nothing waits for but what both GPUs are given later on. `CaptureError` while a graph is captured."""
    if capturing.now is not None:
        raise CaptureError(
            "a tensor is copied to another GPU while a CUDA graph is captured: move it before the capture"
        )
    index, target = array.data.device_id, current_cuda() if device.index is None else device.index
    check_index(target)
    with cupy.cuda.Device(index):
        source = cupy.ascontiguousarray(array)
        here = cupy.cuda.get_current_stream()
        ready = here.record(cupy.cuda.Event(disable_timing=True))
    with cupy.cuda.Device(target):
        there = cupy.cuda.get_current_stream()
        out = cupy.empty(array.shape, array.dtype)
        there.wait_event(ready)
        cupy.cuda.runtime.memcpyPeerAsync(out.data.ptr, target, source.data.ptr, index, out.nbytes, there.ptr)
        done = there.record(cupy.cuda.Event(disable_timing=True))
    with cupy.cuda.Device(index):
        here.wait_event(done)  # before it writes to the source, or its memory is given away
    return out


def to_host(array: Array) -> np.ndarray:
    """A copy in host memory; waits for the work that computes the array."""
    return array.get()


def _on_host(name: str) -> Callable[..., Any]:
    """A kernel of the CPU, which waits for its arrays: neither CuPy nor a library that it brings has one."""

    def kernel(*args: Any) -> Any:
        device = next(backend_of("cuda").device_of(x) for x in args if isinstance(x, cupy.ndarray))
        found = getattr(backend_of("cpu"), name)(
            *[to_host(x) if isinstance(x, cupy.ndarray) else x for x in args]
        )
        several = isinstance(found, tuple)
        results = tuple(from_host(x, device) for x in (found if several else (found,)))
        return results if several else results[0]

    return kernel


def _logical(ufunc: Any) -> Callable[..., Array]:
    """A logical function, which CuPy has not got for complex numbers."""

    def kernel(*operands: Array) -> Array:
        return ufunc(*[x != 0 if x.dtype.kind == "c" else x for x in operands])

    return kernel


def where(condition: Array, input: Any, other: Any) -> Array:
    """`input` where `condition` is true, elsewhere `other`; either of the two may be a number."""
    kinds = [x.dtype for x in (input, other) if hasattr(x, "dtype")]
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        common = np.result_type(*kinds)
        input, other = input.astype(common, copy=False), other.astype(common, copy=False)
    return _where(condition.astype(np.bool_, copy=False), input, other)


def clamp(input: Array, min: Any = None, max: Any = None) -> Array:
    """`input` limited to [min, max]; None is no limit, and `max` counts where min > max."""
    out = input if min is None else cupy.maximum(input, min)
    out = out if max is None else cupy.minimum(out, max)
    return out.copy() if out is input else out


def tril(input: Array, diagonal: int = 0) -> Array:
    """The lower triangle of the last two dimensions; elsewhere 0."""
    return where(cupy.tri(*input.shape[-2:], k=diagonal, dtype=np.bool_), input, 0)


def triu(input: Array, diagonal: int = 0) -> Array:
    """The upper triangle of the last two dimensions; elsewhere 0."""
    return where(cupy.tri(*input.shape[-2:], k=diagonal - 1, dtype=np.bool_), 0, input)


def argsort(input: Array, dim: int = -1, descending: bool = False) -> Array:
    """Indices that sort along `dim`; equal elements keep their order."""
    if input.ndim == 0:
        return cupy.zeros((), np.int64)
    keys = input.astype(np.float32) if input.dtype == _BFLOAT16 else input
    if not descending:
        return cupy.argsort(keys, axis=dim)  # always stable
    # Stable in descending order: sort the reversed array and read it backwards.
    order = cupy.argsort(cupy.flip(keys, dim), axis=dim)
    return input.shape[dim] - 1 - cupy.flip(order, dim)


def nonzero(input: Array) -> Array:
    """Indices of the elements that are not zero, one row each; waits for the GPU to know how many."""
    return cupy.argwhere(input)


def erf(input: Array) -> Array:
    """The error function of each element."""
    if input.dtype.itemsize == 2:
        return special.erf(input.astype(np.float32)).astype(input.dtype)
    return special.erf(input)
