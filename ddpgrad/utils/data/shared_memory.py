"""Shared memory without a name, so that nothing is left behind however processes end."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

_ALIGNMENT = 64


class Segment:
    """`size` bytes in `array`, a uint8 array. A process that is started with one shares its bytes.

    private: writes stay in this process, and cost memory only for the pages they touch.
    """

    def __init__(self, fd: int, size: int, private: bool = False) -> None:
        self.fd = fd
        self.size = size
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        self._memory = mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.array = np.frombuffer(self._memory, dtype=np.uint8)

    @classmethod
    def create(cls, size: int) -> Segment:
        """New memory, of zeros, at least one page."""
        size = max(size, mmap.PAGESIZE)
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("ddpgrad-loader")
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, size)
        return cls(fd, size)

    def forget_file(self) -> None:
        """Close the descriptor; the memory stays."""
        os.close(self.fd)
        self.fd = -1

    def __reduce__(self) -> Any:
        return _attach, (DupFd(self.fd), self.size)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.forget_file()

    def private(self) -> Segment:
        """The same bytes, of which this process may change its own copy."""
        return Segment(os.dup(self.fd), self.size, private=True)


def _attach(fd: Any, size: int) -> Segment:
    return Segment(fd.detach(), size)


def spans(buffers: Sequence[memoryview]) -> list[tuple[int, int]]:
    """Where `buffers` lie when they are put one after the other: (begin, end), begins aligned."""
    places, end = [], 0
    for buffer in buffers:
        begin = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = begin + buffer.nbytes
        places.append((begin, end))
    return places


def fill(segment: Segment, buffers: Sequence[memoryview], places: Sequence[tuple[int, int]]) -> None:
    """Copy `buffers` to their places."""
    for buffer, (begin, end) in zip(buffers, places, strict=True):
        segment.array[begin:end] = np.frombuffer(buffer, dtype=np.uint8)


class Lease:
    """The bytes of a segment, lent to arrays: `give_back` is called when the last of them is gone.

    Arrays made from it by `np.asarray` keep it alive, and so do their views.
    """

    __slots__ = ("__array_interface__", "_give_back", "_segment")

    def __init__(self, segment: Segment, give_back: Callable[[], None]) -> None:
        self._segment = segment
        self._give_back = give_back
        self.__array_interface__ = segment.array.__array_interface__

    def __del__(self) -> None:
        self._give_back()
