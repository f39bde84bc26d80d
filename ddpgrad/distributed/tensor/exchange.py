"""Collectives of raw arrays wherever they lie: as they are where the transport takes them, else through host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backend.registry import backend_for, to_device
from ...core import spans
from ..communicator.communicator import Communicator

Array = Any


def told(op: str, c: Communicator, array: Array, began: float) -> None:
    """Recorders of single collectives hear of PyTorch's `op`, which carried `array`."""
    if spans.detailed and c.size > 1:
        name = f"{c.transport}:{op.partition('.')[2]}"
        spans.tell_detail("collective", name, began, spans.COMMUNICATION, shapes=[[*array.shape]], op=op)


def takes(c: Communicator, array: Array) -> bool:
    """Whether `c` carries `array` where it lies; others are staged: copied to the host and back."""
    return isinstance(array, np.ndarray) or c.transport == "nccl"


def fresh(like: Array, shape: int | Sequence[int], dtype: Any) -> Array:
    """An array to be filled, on the device of `like`."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype)
    backend = backend_for(like)
    return backend.on(backend.device_of(like), backend.library.empty, shape, dtype)


def sent_by(c: Communicator, array: Array) -> Array:
    """What goes through `c` for `array`: itself, or a copy on the host, which waits for the GPU."""
    return array if takes(c, array) else backend_for(array).to_host(array)


def brought(array: Array, like: Array) -> Array:
    """What came through a communicator, on the device of `like`."""
    return array if array.__class__ is like.__class__ else to_device(array, backend_for(like).device_of(like))


def start_all_gather(
    c: Communicator, array: Array, label: str, background: bool = True
) -> Callable[[], Array]:
    """Begin to gather the arrays of all ranks; what is returned waits, and gives them as (ranks, *shape)."""
    rows, work = c.start_all_gather(sent_by(c, array), label, background)

    def wait() -> Array:
        work.wait()
        return brought(rows, array)

    return wait


def all_to_all(c: Communicator, array: Array, splits: Sequence[int]) -> list[Array]:
    """As `Communicator.all_to_all`."""
    return [brought(part, array) for part in c.all_to_all(sent_by(c, array), splits)]


def all_reduce(c: Communicator, array: Array, op: str, label: str) -> None:
    """As `Communicator.all_reduce`, in place."""
    sent = sent_by(c, array)
    c.all_reduce(sent, op, label)
    if sent is not array:
        array[...] = brought(sent, array)
