"""GPUs: their number and properties, the current device, synchronization."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from ..backend import device as kinds
from ..backend.cuda import library
from ..core.errors import DeviceError

_BF16_SINCE = (8, 0)


def is_available() -> bool:
    """True when CuPy is installed and there is a GPU that it can use; `why_not` says what is missing."""
    return library.missing() is None


def why_not() -> str | None:
    """Why `is_available` is False, and what to do about it; None when it is True."""
    return library.missing()


def init() -> None:
    """Load CuPy now instead of at the first use of a GPU."""
    library.cupy_and_count()


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    """Call what needs a GPU, where there is one."""
    if is_available():
        callable()


def is_initialized() -> bool:
    """True when CuPy was loaded."""
    return library.in_use()


def device_count() -> int:
    """The number of GPUs that this process can use; 0 without CuPy."""
    return 0 if library.missing() is not None else library.cupy_and_count()[1]


def current_device() -> int:
    """The index of this rank's current GPU."""
    library.use_current()
    return kinds.current_cuda()


def set_device(device: Any) -> None:
    """Make a GPU, by index, 'cuda:1' or `Device`, this rank's current one; a negative index changes nothing."""
    if isinstance(device, int) and device < 0:
        return
    index = index_of(device)
    library.use(index)
    kinds.set_current_cuda(index)


class device:
    """`with torch.cuda.device(1):` makes GPU 1 this rank's current one within the block.

    None and negative indices leave it as it is.
    """

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None or (isinstance(device, int) and device < 0) else index_of(device)
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


class device_of(device):
    """As `device`, for the GPU that a tensor is on; nothing for a tensor that is on none."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.is_cuda else -1)


def synchronize(device: Any = None) -> None:
    """Wait until all work that was given to a GPU, by default the current one, is done."""
    cupy, _ = library.cupy_and_count()
    cupy.cuda.Device(index_of(device)).synchronize()


class Properties(NamedTuple):
    """What `get_device_properties` returns; memory in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int


def get_device_properties(device: Any = None) -> Properties:
    """Name, compute capability, memory and processors of a GPU."""
    cupy, _ = library.cupy_and_count()
    found = cupy.cuda.runtime.getDeviceProperties(index_of(device))
    return Properties(
        found["name"].decode(),
        found["major"],
        found["minor"],
        found["totalGlobalMem"],
        found["multiProcessorCount"],
        found["warpSize"],
        found["maxThreadsPerMultiProcessor"],
    )


def get_device_name(device: Any = None) -> str:
    """The name of a GPU, such as 'NVIDIA H200'."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU, such as (9, 0)."""
    found = get_device_properties(device)
    return found.major, found.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True when the current GPU multiplies bfloat16 itself, which those since Ampere do."""
    return is_available() and get_device_capability() >= _BF16_SINCE


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """True when one GPU can read another's memory."""
    cupy, _ = library.cupy_and_count()
    return bool(cupy.cuda.runtime.deviceCanAccessPeer(index_of(device), index_of(peer_device)))


def get_arch_list() -> list[str]:
    """No architectures: kernels are compiled for the GPU that is there."""
    return []


def index_of(device: Any) -> int:
    """The index of the GPU that `device` names; None and 'cuda' name the current one."""
    if device is None:
        return current_device()
    found = kinds.of(device)
    if found.type != "cuda" or found.index is None:
        raise DeviceError(f"torch.cuda: expected a GPU such as 0 or 'cuda:0', got device '{found}'")
    library.check_index(found.index)
    return found.index


__all__ = [
    "can_device_access_peer", "current_device", "device", "device_count", "device_of", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "init", "is_available", "is_bf16_supported",
    "is_initialized", "set_device", "synchronize", "why_not",
]  # fmt: skip
