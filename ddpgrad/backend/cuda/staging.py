"""Page-locked host memory through which arrays go between a GPU and a transport of the host.

Copies to and from such memory run beside the GPU's kernels, on a stream of their own, and are
ordered against the caller's stream by events: nothing waits for more than it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from .library import use_current

Array = Any

_ALIGNMENT = 64  # bytes: no two arrays share a cache line


class PinnedStage:
    """A page-locked host buffer of `nbytes` bytes, and the stream on which it is filled and emptied.

    An array that takes part in a copy must be C-contiguous; it is kept alive until
    `synchronize`. Host code may touch a view of the buffer only after `synchronize`.
    """

    def __init__(self, nbytes: int) -> None:
        use_current()
        self.nbytes = nbytes
        memory = cupy.cuda.alloc_pinned_memory(max(nbytes, 1))
        self._bytes = np.frombuffer(memory, np.uint8, nbytes)
        self._stream = cupy.cuda.Stream(non_blocking=True)
        # CuPy's pool would hand freed memory to the caller's stream while this one still reads it.
        self._in_flight: list[Array] = []

    def view(self, array: Array, offset: int = 0) -> np.ndarray:
        """The host array of `array`'s shape and type that begins at byte `offset` of the buffer."""
        if offset < 0 or offset + array.nbytes > self.nbytes:
            raise ValueError(
                f"PinnedStage: an array of {array.nbytes} bytes at offset {offset} does not fit into {self.nbytes} bytes"
            )
        return self._bytes[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)

    def to_host_async(self, array: Array, offset: int = 0) -> np.ndarray:
        """Start copying `array` to the buffer, after the caller's work so far; returns the host view."""
        host = self.view(_checked(array), offset)
        self._stream.wait_event(_now())
        array.get(stream=self._stream, out=host, blocking=False)
        self._in_flight.append(array)
        return host

    def from_host_async(self, array: Array, offset: int = 0) -> None:
        """Start filling `array` from the buffer; the caller's later work on the GPU sees it filled."""
        host = self.view(_checked(array), offset)
        self._stream.wait_event(_now())
        array.set(host, stream=self._stream)
        self._in_flight.append(array)
        cupy.cuda.get_current_stream().wait_event(self._stream.record(cupy.cuda.Event(disable_timing=True)))

    def synchronize(self) -> None:
        """Wait until all copies started here are done."""
        self._stream.synchronize()
        self._in_flight.clear()


def bytes_for(arrays: Sequence[Array]) -> int:
    """The size of a `PinnedStage` that holds `arrays` together."""
    return sum(_padded(a.nbytes) for a in arrays)


def stage_out(arrays: Sequence[Array], pinned: PinnedStage) -> list[np.ndarray]:
    """Copy GPU arrays to page-locked memory, one after the other, and wait; returns the host views."""
    views = [pinned.to_host_async(array, offset) for array, offset in _placed(arrays)]
    pinned.synchronize()
    return views


def stage_in(arrays: Sequence[Array], pinned: PinnedStage) -> None:
    """Fill the GPU arrays from where `stage_out` put them, and wait, so that the buffer is free again."""
    for array, offset in _placed(arrays):
        pinned.from_host_async(array, offset)
    pinned.synchronize()


def _placed(arrays: Sequence[Array]) -> list[tuple[Array, int]]:
    placed, offset = [], 0
    for array in arrays:
        placed.append((array, offset))
        offset += _padded(array.nbytes)
    return placed


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _checked(array: Array) -> Array:
    if not array.flags.c_contiguous:
        raise ValueError(
            f"PinnedStage: expected a C-contiguous array, got strides {array.strides} for {array.shape}"
        )
    return array


def _now() -> Any:
    """An event at the end of the caller's work so far."""
    return cupy.cuda.get_current_stream().record(cupy.cuda.Event(disable_timing=True))
