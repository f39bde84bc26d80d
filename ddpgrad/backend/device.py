"""Devices: where a tensor's bytes live; and whether the calling thread captures a CUDA graph."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.errors import DeviceError
from ..core.rank_local import RankLocal
from ..core.upcalls import gpu_count

if TYPE_CHECKING:
    from .cuda.capture import Capture

KINDS = ("cpu", "cuda", "meta")
_NAMED = ("mps", "xpu", "xla", "hpu", "mtia", "vulkan", "privateuseone")
"""Kinds of PyTorch's that a program may name, and compare with; no tensor is ever there."""


class Device:
    """`Device("cuda", 1)` or `Device("cuda:1")`: a kind and, for GPUs, an index."""

    __slots__ = ("index", "type")

    def __init__(self, type: str | Device | int, index: int | None = None) -> None:
        kind = type
        if index is not None and not isinstance(index, int):
            raise TypeError(
                f"device(): argument 'index' (position 2) must be int, not {index.__class__.__name__}"
            )
        if (isinstance(kind, int) and kind < 0) or (index is not None and index < 0):
            raise DeviceError("Device index must not be negative")
        if isinstance(kind, Device):
            kind, index = kind.type, kind.index
        elif isinstance(kind, int):
            kind, index = "cuda", kind
        elif ":" in kind and index is None:
            kind, _, number = kind.partition(":")
            if not number.isdigit():
                raise DeviceError(f"invalid device string '{kind}:{number}': the index must be a number")
            index = int(number)
        if kind not in KINDS and kind not in _NAMED:
            raise DeviceError(
                f"Expected one of {', '.join(KINDS)} device type at start of device string: {kind}"
            )
        self.type: str = kind
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __deepcopy__(self, memo: object) -> Device:
        return self

    def __reduce__(self) -> Any:
        return Device, (self.type, self.index)

    def __enter__(self) -> Device:
        """Make this the default device of a `with` block."""
        _defaults.devices.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _defaults.devices.pop()


CPU = Device("cpu")
META = Device("meta")

float32_precision: RankLocal[str] = RankLocal(lambda: "highest")
"""'highest', or 'high' or 'medium' where GPUs may round the operands of float32 products to TF32."""


class _Defaults(threading.local):
    """The default device of a thread, below those of the `with` blocks that it is in."""

    def __init__(self) -> None:
        self.devices = [CPU]


_defaults = _Defaults()


def default() -> Device:
    """Where new tensors of this thread go."""
    return _defaults.devices[-1]


def chosen() -> Device | None:
    """Where the program wants new tensors of this thread; None where it has not said."""
    found = _defaults.devices
    return None if len(found) == 1 and found[0] is CPU else found[-1]


def get_default_device() -> Device:
    """The device on which new tensors of this thread are made."""
    return of(default())


def set_default_device(device: Any) -> None:
    """Make new tensors of this thread on `device`; None means the CPU. Other threads have a default of their own."""
    _defaults.devices[0] = CPU if device is None else Device(device)


_chosen_cuda: RankLocal[int | None] = RankLocal(lambda: None)
_local_rank: RankLocal[int] = RankLocal(lambda: 0)


def current_cuda() -> int:
    """Index of this rank's current GPU: the one set, else by the rank's index on its host."""
    index = _chosen_cuda.get()
    if index is None:
        index = _local_rank.get() % gpu_count()
        _chosen_cuda.set(index)
    return index


def set_current_cuda(index: int) -> None:
    """Make GPU `index` this rank's current one."""
    _chosen_cuda.set(index)


def set_local_rank(index: int) -> None:
    """Say which of the ranks on this host is calling: the ranks share the GPUs out by it."""
    _local_rank.set(index)


def of(device: Any) -> Device:
    """The `Device` for None (the CPU), a string, an index or a `Device`, its index filled in."""
    if device is None:
        return CPU
    found = device if isinstance(device, Device) else Device(device)
    if found.type == "cuda" and found.index is None:
        return Device("cuda", current_cuda())
    if found.type == "cpu":
        return CPU
    if found.type == "meta":
        return META
    if found.type not in KINDS:
        raise DeviceError(
            f"device '{found.type}': ddpgrad has tensors on {', '.join(KINDS)}, and nowhere else"
        )
    return found


class _Capturing(threading.local):
    """now: the capture of a CUDA graph by the calling thread, if there is one (`cuda/capture.py`)."""

    now: Capture | None = None


capturing = _Capturing()


THROUGH_HOST = (
    "goes through host memory, which a CUDA graph does not touch; with the backend 'nccl', and a process and a GPU for each "
    "rank, it can be part of one"
)
"""The end of an error about data between ranks."""


def on_capture_failure(undo: Callable[[], None]) -> None:
    """Have `undo` called if this thread captures and the capture fails: what was begun will not be ended."""
    if capturing.now is not None:
        capturing.now.undo.append(undo)


capture_forgets: list[Callable[[], None]] = []
"""Called where a capture begins and where it ends: what keeps arrays between ops lets go of them."""
