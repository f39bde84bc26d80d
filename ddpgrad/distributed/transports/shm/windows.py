"""Windows: arrays in memory that all processes of a host map. Each reads and writes those of the others."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from mmap import mmap

import numpy as np

from ....backend.elementary.shape import address_of
from ....core.environment import Launch
from ....core.errors import TransportError
from ...protocol import tree
from ..calls import Allocate
from . import segments

# A place is a window's number from 1, and an offset in it; 0 stands for the scratch area.
_OFFSET_BITS = 44
_PAGE = 4096

Gather = Callable[[np.ndarray], np.ndarray]
"""Rows of all ranks; each process contributes one array for all its ranks."""


class _Window:
    """One allocation, as this process maps it: an array of each rank, `stride` bytes apart."""

    def __init__(self, memory: mmap, stride: int) -> None:
        self.memory = memory
        self.stride = stride
        self.start = address_of(np.frombuffer(memory, np.uint8))
        self.stop = self.start + len(memory)
        self.arrays: list[weakref.ref[np.ndarray]] = []

    def unused(self) -> bool:
        """True when no array of this process's ranks is left."""
        return all(array() is None for array in self.arrays)


class Share:
    """This process's share of arrays in windows, one of each rank.

    from_end: where the next sum begins. Turning round each time, it finds what the last one left in the cache.
    """

    __slots__ = ("from_end", "pieces")

    def __init__(self, pieces: list[np.ndarray]) -> None:
        self.pieces = pieces
        self.from_end = False


class Windows:
    """The allocations of the ranks of `job` on this host, as this process maps them."""

    def __init__(self, launch: Launch, job: str) -> None:
        self._launch, self._job = launch, job
        self._windows: dict[int, _Window] = {}
        self._allocations = 0
        self._shares: dict[tuple[tuple[int, ...], int, np.dtype], Share] = {}

    def place(self, array: np.ndarray) -> int:
        """Where `array` begins, in a number that all processes understand; 0 if it is in no window."""
        if not self._windows:
            return 0
        address = address_of(array)
        for index, window in self._windows.items():
            if window.start <= address < window.stop:
                return index << _OFFSET_BITS | (address - window.start)
        return 0

    def view(self, place: int, like: np.ndarray) -> np.ndarray:
        """The array at `place`, with the length and dtype of `like`."""
        window = self._windows[place >> _OFFSET_BITS]
        offset = place & ((1 << _OFFSET_BITS) - 1)
        return np.ndarray(like.shape, like.dtype, window.memory, offset)

    def share(self, places: tuple[int, ...], like: np.ndarray) -> Share:
        """This process's share of the arrays at `places`, with the length and dtype of `like`."""
        key = (places, like.size, like.dtype)
        share = self._shares.get(key)
        if share is None:
            low, high = tree.share(like.size, self._launch.procs, self._launch.proc)
            share = self._shares[key] = Share([self.view(place, like)[low:high] for place in places])
        return share

    def allocate(self, calls: Sequence[Allocate], gather: Gather) -> None:
        """Make one segment with an array for every rank, and map it in every process. Collective."""
        template = calls[0].array
        self._shares.clear()  # which keep windows mapped
        # A window goes when all processes have dropped their arrays: so all agree which exist.
        unused = np.array([window.unused() for window in self._windows.values()], np.uint8)
        dropped = np.min(gather(unused), axis=0)
        for index, gone in zip(list(self._windows), dropped, strict=True):
            if gone:
                del self._windows[index]
        if template.size == 0:
            for call in calls:
                call.result = np.empty(0, template.dtype)
            return
        stride = -(-template.size * template.itemsize // _PAGE) * _PAGE
        self._allocations += 1
        window = self._map(gather, f"window{self._allocations}", stride)
        self._windows[self._allocations] = window
        for rank, call in zip(self._launch.ranks, calls, strict=True):
            call.result = np.ndarray(template.shape, template.dtype, window.memory, rank * stride)
            window.arrays.append(weakref.ref(call.result))

    def _map(self, gather: Gather, name: str, stride: int) -> _Window:
        launch = self._launch
        path = segments.path_of(self._job, name)
        size = stride * launch.world_size
        memory = segments.create(path, size) if launch.proc == 0 and segments.available() >= size else None
        try:
            _all_succeed(gather, launch.proc != 0 or memory is not None, size)
            if memory is None:
                memory = segments.attach(path, size)
            mine = launch.ranks
            try:
                # Each process takes its own part, which so lies in the memory next to its cores.
                segments.reserve(path, mine.start * stride, len(mine) * stride)
                reserved = True
            except TransportError:
                reserved = False
            _all_succeed(gather, reserved, size)
        finally:
            if launch.proc == 0:
                segments.remove(path)
        return _Window(memory, stride)


def _all_succeed(gather: Gather, succeeded: bool, size: int) -> None:
    """Raise TransportError on all ranks if an allocation failed in one process."""
    status = np.array([succeeded, segments.available()], np.int64)
    for row in gather(status):
        if not row[0]:
            raise TransportError(segments.out_of_room(size, int(row[1])))
