"""Copies between a GPU and memory of the host that transports read, such as memory shared by processes.

The memory is page-locked where it is, so that nothing lies between it and the GPU. Copies run beside the GPU's kernels,
on a stream of their own, and are ordered against the caller's stream by events: nothing waits for more than it needs.
"""

from __future__ import annotations

import weakref
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from ...core.errors import CaptureError, DeviceError
from ..device import THROUGH_HOST, capturing

Array = Any

_PAGE = 4096
_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all GPUs


def room_for(length: int, dtype: Any) -> int:
    """How many elements of host memory a `Stage` of `length` elements wants: whole pages, wherever they begin."""
    size = np.dtype(dtype).itemsize
    return (-(-length * size // _PAGE) + 1) * _PAGE // size


class Stage:
    """An array of the host, and the stream on which it is filled from a GPU and a GPU's from it.

    room: memory of `room_for(length, dtype)` elements, of which `host` is a part. Host code may touch that only after
    `synchronize`. An array that takes part in a copy is contiguous and at most as long; it is kept alive until `synchronize`.
    """

    def __init__(self, room: np.ndarray, length: int, like: Array) -> None:
        """like: an array on the GPU."""
        first = -room.ctypes.data % _PAGE // room.itemsize
        self.host = room[first : first + length]
        self._gpu = cupy.cuda.Device(like.data.device_id)
        with self._gpu:
            self._stream = cupy.cuda.Stream(non_blocking=True)
            size = -(-self.host.nbytes // _PAGE) * _PAGE
            try:
                cupy.cuda.runtime.hostRegister(self.host.ctypes.data, size, _PORTABLE)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise DeviceError(
                    f"CUDA cannot page-lock {size} bytes of shared memory ({error}): gradients cannot go through it. "
                    "Ask for the backend 'nccl', or for fewer bytes by DistributedDataParallel(bucket_cap_mb=…)."
                ) from error
        weakref.finalize(room, _unlock, self._stream, self.host.ctypes.data).atexit = False
        # CuPy's pool would hand freed memory to the caller's stream while this one still reads it.
        self._in_flight: list[Array] = []

    def to_host(self, array: Array) -> None:
        """Start copying `array` to the beginning of `host`, after the caller's work so far."""
        if capturing.now is not None:
            raise CaptureError(f"the sum of gradients {THROUGH_HOST}")
        with self._gpu:
            self._stream.wait_event(_now())
            array.get(stream=self._stream, out=self.host[: array.size], blocking=False)
        self._in_flight.append(array)

    def from_host(self, array: Array) -> None:
        """Start filling `array` from the beginning of `host`; the caller's later work on the GPU sees it filled."""
        with self._gpu:
            self._stream.wait_event(_now())
            array.set(self.host[: array.size], stream=self._stream)
            cupy.cuda.get_current_stream().wait_event(
                self._stream.record(cupy.cuda.Event(disable_timing=True))
            )
        self._in_flight.append(array)

    def synchronize(self) -> None:
        """Wait until all copies started here are done."""
        self._stream.synchronize()
        self._in_flight.clear()


def _now() -> Any:
    """An event at the end of the caller's work so far."""
    return cupy.cuda.get_current_stream().record(cupy.cuda.Event(disable_timing=True))


def _unlock(stream: Any, address: int) -> None:
    """Before memory is given back: no copy uses it any more, and CUDA capture_forgets it."""
    stream.synchronize()
    cupy.cuda.runtime.hostUnregister(address)
