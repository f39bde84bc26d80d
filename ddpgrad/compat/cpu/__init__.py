"""`torch.cpu`: the CPU as a device with streams, which never have to be waited for."""

from __future__ import annotations

import contextlib
from typing import Any

from . import amp


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1: all cores are one device."""
    return 1


def current_device() -> str:
    """'cpu'."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one CPU."""


def synchronize(device: Any = None) -> None:
    """Nothing: ops on the CPU are done when they return."""


def is_initialized() -> bool:
    """True."""
    return True


class Event:
    """A point in the CPU's one queue of work: it has come about when it is asked for."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing: ops on the CPU are done when they return."""

    def synchronize(self) -> None:
        """Nothing, as `record`."""

    def wait(self, stream: Any = None) -> None:
        """Nothing, as `record`."""


class Stream(contextlib.AbstractContextManager["Stream"]):
    """The CPU's one queue of work, for programs written for several; nothing has to wait for it."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def record_event(self) -> Event:
        """An event, which has come about."""
        return Event()

    def wait_event(self, event: Any) -> None:
        """Nothing: ops on the CPU are done when they return."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing, as `wait_event`."""


StreamContext = contextlib.nullcontext[Stream]
_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    """The CPU's one queue of work."""
    return _stream


def stream(stream: Stream | None) -> StreamContext:
    """A block in which ops are given to `stream`: the CPU has one."""
    return contextlib.nullcontext(_stream)


__all__ = [
    "Event", "Stream", "StreamContext", "amp", "current_device", "current_stream", "device_count", "is_available",
    "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip
