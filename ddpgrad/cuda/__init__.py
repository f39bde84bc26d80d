"""GPUs, as `torch.cuda`: which there are, which one this rank uses, its memory, and waiting for it.

An op runs on this rank's current GPU, where its tensors must be: `set_device` chooses it, and
`init_process_group` deals the GPUs of a host out to its ranks. CuPy is loaded by the first call
here that needs a GPU, or by the first tensor on one.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from .. import random
from ..backend import device as devices
from ..backend.cuda import library
from ..errors import DeviceError


def is_available() -> bool:
    """True when CuPy is installed and there is a GPU that it can use; `why_not` says what is missing."""
    return library.missing() is None


def why_not() -> str | None:
    """Why `is_available` is False, and what to do about it; None when it is True."""
    return library.missing()


def device_count() -> int:
    """The number of GPUs that this process can use; 0 without CuPy."""
    return 0 if library.missing() is not None else library.cupy_and_count()[1]


def current_device() -> int:
    """The index of this rank's current GPU."""
    library.use_current()
    return devices.current_cuda()


def set_device(device: Any) -> None:
    """Make a GPU, by index, 'cuda:1' or `Device`, this rank's current one; a negative index changes nothing."""
    if isinstance(device, int) and device < 0:
        return
    index = _index(device)
    library.use(index)
    devices.set_current_cuda(index)


class device:
    """`with torch.cuda.device(1):` makes GPU 1 this rank's current one within the block.

    None and negative indices leave it as it is.
    """

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None or (isinstance(device, int) and device < 0) else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.idx >= 0:
            set_device(self.prev_idx)


def synchronize(device: Any = None) -> None:
    """Wait until all work that was given to a GPU, by default the current one, is done."""
    cupy, _ = library.cupy_and_count()
    cupy.cuda.Device(_index(device)).synchronize()


def get_device_name(device: Any = None) -> str:
    """The name of a GPU, such as 'NVIDIA H200'."""
    cupy, _ = library.cupy_and_count()
    return cupy.cuda.runtime.getDeviceProperties(_index(device))["name"].decode()


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU, such as (9, 0)."""
    cupy, _ = library.cupy_and_count()
    properties = cupy.cuda.runtime.getDeviceProperties(_index(device))
    return properties["major"], properties["minor"]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU's memory, other programs counted in."""
    cupy, _ = library.cupy_and_count()
    return cupy.cuda.Device(_index(device)).mem_info


def memory_allocated(device: Any = None) -> int:
    """Bytes of a GPU's memory that arrays of this process occupy."""
    return _pool_bytes(device, "used_bytes")


def memory_reserved(device: Any = None) -> int:
    """Bytes of a GPU's memory that this process holds, for arrays or for later ones."""
    return _pool_bytes(device, "total_bytes")


def max_memory_allocated(device: Any = None) -> int:
    """A bound for the most bytes that arrays occupied at once since `empty_cache`: what is held now.

    CuPy's pool keeps no such maximum, but it gives nothing back before `empty_cache`, so it
    holds at least as much as was ever in use.
    """
    return _pool_bytes(device, "total_bytes")


max_memory_reserved = max_memory_allocated


def empty_cache() -> None:
    """Give memory that no array occupies back to the GPU; the pinned host memory too."""
    if not library.in_use():
        return
    cupy, _ = library.cupy_and_count()
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


def manual_seed(seed: int) -> None:
    """Restart this rank's default generator: the keys of GPU kernels are drawn from it as well."""
    random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """As `manual_seed`: a rank has one generator for all its devices."""
    random.manual_seed(seed)


def _pool_bytes(device: Any, what: str) -> int:
    cupy, _ = library.cupy_and_count()
    with cupy.cuda.Device(_index(device)):
        return int(getattr(cupy.get_default_memory_pool(), what)())


def _index(device: Any) -> int:
    """The index of the GPU that `device` names; None and 'cuda' name the current one."""
    if device is None:
        return current_device()
    found = devices.of(device)
    if found.type != "cuda" or found.index is None:
        raise DeviceError(f"torch.cuda: expected a GPU such as 0 or 'cuda:0', got device '{found}'")
    library.check_index(found.index)
    return found.index


__all__ = [
    "current_device", "device", "device_count", "empty_cache", "get_device_capability", "get_device_name",
    "is_available", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_reserved", "set_device", "synchronize", "why_not",
]  # fmt: skip
