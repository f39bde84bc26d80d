"""Streams and events: the order of work on a GPU.

A stream is CuPy's. Ops are given to the stream that is current in the calling thread; memory
that a stream still uses is not given to another stream before, since CuPy's pool keeps the
free blocks of each stream apart.
"""

from __future__ import annotations

from typing import Any

from ..backend.cuda import library
from .devices import index_of


class Stream:
    """A queue of work on a GPU, beside other queues; within a `with` block it is the current one.

    priority: a lower number is served first.
    """

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        cupy, _ = library.cupy_and_count()
        index = index_of(device)
        self.device_index = index
        with cupy.cuda.Device(index):
            self._stream = options.pop("_stream", None) or cupy.cuda.Stream(
                non_blocking=True, priority=priority
            )
        if options:
            raise TypeError(f"Stream() got an unexpected keyword argument '{next(iter(options))}'")

    @property
    def cuda_stream(self) -> int:
        """The stream's address, for other libraries."""
        return self._stream.ptr

    def synchronize(self) -> None:
        """Wait until all that was given to this stream is done."""
        self._stream.synchronize()

    def query(self) -> bool:
        """True when all that was given to this stream is done."""
        return bool(self._stream.done)

    def record_event(self, event: Event | None = None) -> Event:
        """An event that comes about when all that was given to this stream so far is done."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let what is given to this stream from now on wait for `event`."""
        self._stream.wait_event(event._event)

    def wait_stream(self, stream: Stream) -> None:
        """Let what is given to this stream from now on wait for what was given to the other one so far."""
        self.wait_event(stream.record_event())

    def __enter__(self) -> Stream:
        self._stream.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stream.__exit__(*exc)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.cuda_stream == other.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:{self.device_index} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """A point in a stream that others can wait for and, with `enable_timing`, measure time between.

    blocking: the host waits asleep.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise NotImplementedError("torch.cuda.Event: interprocess events are not supported")
        cupy, _ = library.cupy_and_count()
        library.use_current()
        self._event = cupy.cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the end of what was given to `stream`, by default the current one, so far."""
        self._event.record((stream or current_stream())._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Let `stream`, by default the current one, wait for this event."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """True when the event has come about."""
        return bool(self._event.done)

    def synchronize(self) -> None:
        """Wait on the host for the event."""
        self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`; both must have been made with `enable_timing`."""
        cupy, _ = library.cupy_and_count()
        return float(cupy.cuda.get_elapsed_time(self._event, end_event._event))


def current_stream(device: Any = None) -> Stream:
    """The stream to which this thread's ops are given."""
    cupy, _ = library.cupy_and_count()
    return Stream(device, _stream=cupy.cuda.get_current_stream())


def default_stream(device: Any = None) -> Stream:
    """The stream that is current where no other is."""
    cupy, _ = library.cupy_and_count()
    return Stream(device, _stream=cupy.cuda.Stream.null)


class StreamContext:
    """`with torch.cuda.stream(s):` makes `s` current; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exc)


def stream(stream: Stream | None) -> StreamContext:
    """Make `stream` current within a `with` block."""
    return StreamContext(stream)


def set_stream(stream: Stream | None) -> None:
    """Make `stream` this thread's current one from now on; None changes nothing."""
    if stream is not None:
        stream._stream.use()


__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]
