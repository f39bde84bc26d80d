"""Streams and events: the order of work on a GPU.

A stream is CuPy's. Ops are given to the stream that is current in the calling thread, of which each GPU has one; memory
that a stream still uses is not given to another stream before, since CuPy's pool keeps the
free blocks of each stream apart.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from ..backend.cuda import library
from ..backend.device import Device, capturing
from .devices import current_device, index_of, set_device


class Stream:
    """A queue of work on a GPU, beside other queues; within a `with` block it, and its GPU, are the current ones.

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

    @property
    def device(self) -> Device:
        """The GPU that the stream belongs to."""
        return Device("cuda", self.device_index)

    def _on_its_gpu(self) -> Any:
        """A `with` block in which the stream's GPU is CuPy's: that says which GPU's default stream is meant."""
        return library.cupy_and_count()[0].cuda.Device(self.device_index)

    def _use(self) -> None:
        """Make it the current stream of its GPU, which is the current one."""
        self._stream.use()
        library.wait_for_copies(self.device_index, self._stream)

    def synchronize(self) -> None:
        """Wait until all that was given to this stream is done."""
        with self._on_its_gpu():
            self._stream.synchronize()

    def query(self) -> bool:
        """True when all that was given to this stream is done."""
        with self._on_its_gpu():
            return bool(self._stream.done)

    def record_event(self, event: Event | None = None) -> Event:
        """An event that comes about when all that was given to this stream so far is done."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let what is given to this stream from now on wait for `event`."""
        if event._event is not None:
            with self._on_its_gpu():
                self._stream.wait_event(event._event)

    def wait_stream(self, stream: Stream) -> None:
        """Let what is given to this stream from now on wait for what was given to the other one so far."""
        self.wait_event(stream.record_event())

    def __enter__(self) -> Stream:
        before = current_device()
        set_device(self.device_index)
        _entered.outer.append((before, current_stream()))
        self._use()
        return self

    def __exit__(self, *exc: Any) -> None:
        before, stream = _entered.outer.pop()
        with self._on_its_gpu():
            stream._use()
        set_device(before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and hash(self) == hash(other)

    def __hash__(self) -> int:
        return hash((self.device_index, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:{self.device_index} cuda_stream={self.cuda_stream:#x}>"


class _Entered(threading.local):
    """What was current before each `with` block of a stream that this thread is in: (GPU, stream of the block's GPU)."""

    def __init__(self) -> None:
        self.outer: list[tuple[int, Stream]] = []


_entered = _Entered()


class Event:
    """A point in a stream that others can wait for and, with `enable_timing`, measure time between.

    It belongs to the GPU of the stream that it is first recorded in; before that nobody waits for it.
    blocking: the host waits asleep.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise NotImplementedError("torch.cuda.Event: interprocess events are not supported")
        library.cupy_and_count()  # an error where there is no GPU
        self._options = {"block": blocking, "disable_timing": not enable_timing}
        self._event: Any = None
        self._device_index = -1

    @property
    def device(self) -> Device | None:
        """The GPU that the event belongs to; None before it is recorded."""
        return None if self._event is None else Device("cuda", self._device_index)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the end of what was given to `stream`, by default the current one, so far."""
        stream = stream or current_stream()
        with stream._on_its_gpu():
            if self._event is None:
                self._event = library.cupy_and_count()[0].cuda.Event(**self._options)
                self._device_index = stream.device_index
            if self._device_index != stream.device_index:
                raise RuntimeError(
                    f"Event device {self._device_index} does not match recording stream's device {stream.device_index}."
                )
            self._event.record(stream._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Let `stream`, by default the current one, wait for this event."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """True when the event has come about, or was not recorded."""
        return self._event is None or bool(self._event.done)

    def synchronize(self) -> None:
        """Wait on the host for the event."""
        if self._event is not None:
            self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`; both must have been made with `enable_timing`."""
        if self._event is None or end_event._event is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if self._options["disable_timing"] or end_event._options["disable_timing"]:
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        cupy, _ = library.cupy_and_count()
        return float(cupy.cuda.get_elapsed_time(self._event, end_event._event))


def current_stream(device: Any = None) -> Stream:
    """The stream to which this thread's ops are given on a GPU, by default the current one."""
    index = index_of(device)
    cupy, _ = library.cupy_and_count()
    return Stream(index, _stream=cupy.cuda.get_current_stream(index))


def default_stream(device: Any = None) -> Stream:
    """The stream of a GPU that is current where no other is."""
    cupy, _ = library.cupy_and_count()
    return Stream(device, _stream=cupy.cuda.Stream.null)


class _Lent:
    """Memory that streams use, and what comes about when they are done: known when nothing else refers to the memory."""

    __slots__ = ("events", "memory", "streams")

    def __init__(self, memory: Any) -> None:
        self.memory, self.streams = memory, set[Stream]()
        self.events: list[Event] | None = None


_lent: dict[int, _Lent] = {}
_one_at_a_time = threading.RLock()


def lend(array: Any, stream: Stream) -> None:
    """Keep an array's memory, when it is dropped, until `stream` has done what it was given by then.

    CuPy's pool gives it to the stream that it was allocated for, which waits for no other one.
    """
    with _one_at_a_time:
        take_back()
        memory = array.data.mem
        _lent.setdefault(id(memory), _Lent(memory)).streams.add(stream)


def take_back() -> None:
    """Free what was lent to streams and is used no more."""
    if capturing.now is not None:  # when nothing is done, and no event may be asked for
        return
    with _one_at_a_time:
        for key, lent in list(_lent.items()):
            if lent.events is None and sys.getrefcount(lent.memory) <= 2:  # its own, and that of the question
                lent.events = [stream.record_event() for stream in lent.streams]
            if lent.events is not None and all(event.query() for event in lent.events):
                del _lent[key]


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
    """Make `stream`, and its GPU, this thread's current one from now on; None changes nothing."""
    if stream is not None:
        set_device(stream.device_index)
        stream._use()


__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]
