"""Page-locked host memory of users: GPUs read it without a copy in between."""

from __future__ import annotations

import numpy as np

from . import library


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
