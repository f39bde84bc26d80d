"""Page-locked host memory of users: GPUs read it without a copy in between."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from . import library

_read: list[tuple[Any, np.ndarray]] = []
"""Arrays that GPUs still read, each with the event that comes about when that is done: their memory is not given away."""

_one_at_a_time = threading.Lock()


def page_locked(array: np.ndarray) -> np.ndarray:
    """A copy of a host array in page-locked memory; `DeviceError` where there is no GPU to lock it for."""
    library.use_current()
    cupy = library.cupy_and_count()[0]
    memory = cupy.cuda.alloc_pinned_memory(max(array.nbytes, 1))
    copied = np.frombuffer(memory, np.uint8, array.nbytes).view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


def is_page_locked(array: np.ndarray) -> bool:
    """Whether CUDA knows the memory of a host array as page-locked, whoever locked it."""
    if not library.in_use():  # then nobody here has locked any
        return False
    runtime = library.cupy_and_count()[0].cuda.runtime
    return runtime.pointerGetAttributes(array.ctypes.data).type == runtime.memoryTypeHost


def sent(array: np.ndarray) -> Any:
    """A copy on the current GPU of a C-contiguous array in page-locked memory, which is read in the stream's order.

    Nothing waits for that, and no other memory of the host lies in between.
    """
    cupy = library.cupy_and_count()[0]
    stream = cupy.cuda.get_current_stream()
    out = cupy.empty(array.shape, array.dtype)
    out.set(array, stream)
    done = stream.record(cupy.cuda.Event(disable_timing=True))
    with _one_at_a_time:
        _read[:] = [(event, read) for event, read in _read if not event.done]
        _read.append((done, array))
    return out
