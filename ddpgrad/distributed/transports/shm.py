"""The transport between processes of one host: they read and write each other's memory.

A small collective travels through a slot per rank in the control page, with one round of
flags: everyone reads everything. For a larger one, each process combines its share of
the elements over all ranks' buffers, in tree order, and writes it into all of them. If
the buffers come from `allocate`, nothing else is copied; others pass through a scratch
area, piece by piece.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from mmap import mmap

import numpy as np

from ...environment import Launch
from ...errors import DistributedError, TransportError
from .. import tree
from . import segments
from .base import (
    ALLOCATE,
    BROADCAST,
    COMPLETED,
    GATHER,
    REDUCE,
    REDUCE_SCATTER,
    Call,
    Pending,
    Transport,
)
from .control import ARRIVE, DEPTH, DONE, STAGE, Control
from .mail import Delivery, Letters, Message
from .mailbox import Mailbox, room_for

SMALL = 4096
"""Bytes per rank up to which a collective takes the way of one flag round."""

_SCRATCH_TOTAL = 32 << 20
_PAGE = 4096
# A place is a window's number from 1, and an offset in it; 0 stands for the scratch area.
_OFFSET_BITS = 44

_Need = tuple[int, int]


class _Window:
    """One allocation, as this process maps it: an array of each rank, `stride` bytes apart."""

    def __init__(self, memory: mmap, stride: int) -> None:
        self.memory = memory
        self.stride = stride
        self.start = _address(np.frombuffer(memory, np.uint8))
        self.stop = self.start + len(memory)
        self.arrays: list[weakref.ref[np.ndarray]] = []

    def unused(self) -> bool:
        """True when no array of this process's ranks is left."""
        return all(array() is None for array in self.arrays)


class ShmTransport(Transport):
    """Joins the processes of one host under the name `job`."""

    name = "shm"

    def __init__(self, launch: Launch, timeout: float | None, job: str) -> None:
        super().__init__(launch, timeout)
        world = launch.world_size
        self._job = job
        self._scratch_bytes = min(1 << 19, _SCRATCH_TOTAL // world // _PAGE * _PAGE or _PAGE)
        slots = world * DEPTH * SMALL
        sparse = room_for(world)
        self.control = Control(launch, job, slots + world * self._scratch_bytes, self.timeout, sparse)
        self._letters = Letters(launch.world_rank)
        self._mailbox = Mailbox(launch, self.control, self._letters)
        extra = np.frombuffer(self.control.map, np.uint8)[self.control.extra : self.control.sparse]
        self._slots = extra[:slots].reshape(DEPTH, world, SMALL)
        self.scratch = extra[slots : slots + world * self._scratch_bytes].reshape(world, self._scratch_bytes)
        self._slot_cache: dict[tuple[int, int, np.dtype], list[np.ndarray]] = {}
        self._windows: dict[int, _Window] = {}
        self._allocations = 0
        self._posted = 0
        self._stage = 0
        self._free_until = DEPTH
        self._under_way: deque[_Collective] = deque()

    def post(self, calls: Sequence[Call]) -> Pending:
        self.refuse_after_failure()
        if calls[0].kind == ALLOCATE:
            self._allocate(calls)
            return COMPLETED
        number = self._posted + 1
        if number > self._free_until:
            self._make_room(number)
        self._posted = number
        control, first = self.control, calls[0].array
        slots = self._slot_views(number, first) if 0 < first.nbytes <= SMALL else []
        for rank, call in zip(self.ranks, calls, strict=True):
            array = call.array
            if array.nbytes > SMALL:
                control.record(rank, number, call.signature, self._place(array))
                continue
            control.record(rank, number, call.signature, 0)
            # Ranks of this process that do not agree are found out when all have arrived.
            if slots and call.src in (rank, -1) and array.size == first.size:
                slots[rank][...] = array
        control.publish(ARRIVE, number)
        if first.nbytes <= SMALL:
            collective = _Small(self, number, calls, slots)
        else:
            collective = _Large(self, number, calls)
        self._under_way.append(collective)
        return collective

    def send(self, message: Message) -> Delivery:
        self.refuse_after_failure()
        self._mailbox.timeout = self.timeout
        here = message.target in self.ranks
        return self._letters.send(message) if here else self._mailbox.send(message)

    def receive(self, message: Message) -> Delivery:
        self.refuse_after_failure()
        self._mailbox.timeout = self.timeout
        here = message.source in self.ranks
        return self._letters.receive(message) if here else self._mailbox.receive(message)

    def fail(self, rank: int, reason: str, victim: bool) -> None:
        self.control.fail(rank, reason, victim)

    def close(self) -> None:
        if self.failure is None:
            self.failure = DistributedError("the ranks of this process have ended their use of shared memory")
            self.control.finish()

    def progress(self) -> None:
        """Do what can be done without waiting, in the order in which collectives were posted."""
        control = self.control
        try:
            while self._under_way:
                head = self._under_way[0]
                column, target = head.need
                if not control.reached(column, target):
                    head.began = head.began or time.monotonic()
                    control.check(column, target, head.number, head.began, self.timeout)
                    return
                head.began = 0.0
                head.step()
                if head.complete:
                    self._under_way.popleft()
        except DistributedError as error:
            raise self.failed(error) from None

    def finish(self, number: int) -> None:
        """Return when the collective `number`, and so all before it, is complete."""
        control, under_way = self.control, self._under_way
        try:
            while under_way and under_way[0].number <= number:
                head = under_way[0]
                column, target = head.need
                control.wait(column, target, head.number, self.timeout)
                head.step()
                if head.complete:
                    under_way.popleft()
        except DistributedError as error:
            raise self.failed(error) from None

    def agree(self, number: int, calls: Sequence[Call]) -> None:
        """Raise MismatchError unless all ranks called the same under `number`."""
        if not self.control.agreed(number, calls[0].signature.digest):
            raise self.control.mismatch(number)

    def _make_room(self, number: int) -> None:
        """Wait until the ring entry for `number` is no longer read by anyone."""
        self.finish(number - DEPTH)
        try:
            self.control.wait(DONE, number - DEPTH, number - DEPTH, self.timeout)
        except DistributedError as error:
            raise self.failed(error) from None
        self._free_until = self.control.least_done() + DEPTH

    def next_stage(self) -> _Need:
        """Say that this process is done with a step within a collective; what to wait for next."""
        self._stage += 1
        self.control.publish(STAGE, self._stage)
        return STAGE, self._stage

    def _slot_views(self, number: int, like: np.ndarray) -> list[np.ndarray]:
        """The slots of all ranks for collective `number`, as arrays like `like`."""
        key = (number % DEPTH, like.size, like.dtype)
        views = self._slot_cache.get(key)
        if views is None:
            if len(self._slot_cache) > 4096:
                self._slot_cache.clear()
            slots = self._slots[number % DEPTH]
            views = self._slot_cache[key] = [slot[: like.nbytes].view(like.dtype) for slot in slots]
        return views

    def _place(self, array: np.ndarray) -> int:
        if not self._windows:
            return 0
        address = _address(array)
        for index, window in self._windows.items():
            if window.start <= address < window.stop:
                return index << _OFFSET_BITS | (address - window.start)
        return 0

    def window_view(self, place: int, like: np.ndarray) -> np.ndarray:
        """The array at `place`, with the length and dtype of `like`."""
        window = self._windows[place >> _OFFSET_BITS]
        offset = place & ((1 << _OFFSET_BITS) - 1)
        return np.ndarray(like.shape, like.dtype, window.memory, offset)

    def _allocate(self, calls: Sequence[Call]) -> None:
        """Make one segment with an array for every rank, and map it in every process."""
        template = calls[0].array
        # A window goes when all processes have dropped their arrays: so all agree which exist.
        unused = np.array([window.unused() for window in self._windows.values()], np.uint8)
        dropped = np.min(self._gather(calls, unused), axis=0)
        for index, gone in zip(list(self._windows), dropped, strict=True):
            if gone:
                del self._windows[index]
        if template.size == 0:
            for call in calls:
                call.result = np.empty(0, template.dtype)
            return
        stride = -(-template.size * template.itemsize // _PAGE) * _PAGE
        self._allocations += 1
        window = self._map(calls, f"window{self._allocations}", stride)
        self._windows[self._allocations] = window
        for rank, call in zip(self.ranks, calls, strict=True):
            call.result = np.ndarray(template.shape, template.dtype, window.memory, rank * stride)
            window.arrays.append(weakref.ref(call.result))

    def _map(self, calls: Sequence[Call], name: str, stride: int) -> _Window:
        launch = self.launch
        path = segments.path_of(self._job, name)
        size = stride * launch.world_size
        memory = segments.create(path, size) if launch.proc == 0 and segments.available() >= size else None
        try:
            self._all_succeed(calls, launch.proc != 0 or memory is not None, size)
            if memory is None:
                memory = segments.attach(path, size)
            mine = launch.ranks
            try:
                # Each process takes its own part, which so lies in the memory next to its cores.
                segments.reserve(path, mine.start * stride, len(mine) * stride)
                reserved = True
            except TransportError:
                reserved = False
            self._all_succeed(calls, reserved, size)
        finally:
            if launch.proc == 0:
                segments.remove(path)
        return _Window(memory, stride)

    def _all_succeed(self, calls: Sequence[Call], succeeded: bool, size: int) -> None:
        """Raise TransportError on all ranks if an allocation failed in one process."""
        status = np.array([succeeded, segments.available()], np.int64)
        for row in self._gather(calls, status):
            if not row[0]:
                raise TransportError(segments.out_of_room(size, int(row[1])))

    def _gather(self, calls: Sequence[Call], array: np.ndarray) -> np.ndarray:
        """Rows of all ranks; each process contributes one array for all its ranks."""
        rows = np.empty((self.launch.world_size, array.size), array.dtype)
        self.post([Call(GATHER, call.signature, array, result=rows) for call in calls]).wait()
        return rows


class _Collective(Pending):
    """A collective under way, and what it needs from other processes to go on."""

    __slots__ = ("began", "calls", "complete", "need", "number", "transport")

    def __init__(self, transport: ShmTransport, number: int, calls: Sequence[Call]) -> None:
        self.transport = transport
        self.number = number
        self.calls = calls
        self.need = (ARRIVE, number)
        self.complete = False
        self.began = 0.0

    def step(self) -> None:
        """Do what `need` allows now."""
        raise NotImplementedError

    def poll(self) -> bool:
        if not self.complete:
            self.transport.refuse_after_failure()
            self.transport.progress()
        return self.complete

    def wait(self) -> None:
        if not self.complete:
            self.transport.refuse_after_failure()
            self.transport.finish(self.number)


class _Small(_Collective):
    """One flag round: what everyone wrote into the slots is complete when all have arrived."""

    __slots__ = ("_slots",)

    def __init__(
        self, transport: ShmTransport, number: int, calls: Sequence[Call], slots: list[np.ndarray]
    ) -> None:
        super().__init__(transport, number, calls)
        self._slots = slots

    def step(self) -> None:
        calls = self.calls
        self.transport.agree(self.number, calls)
        kind = calls[0].kind
        if not self._slots:
            pass
        elif kind == REDUCE:
            tree.reduce_into([call.array for call in calls], self._slots, calls[0].op)
        elif kind == REDUCE_SCATTER:
            _reduce_parts(calls, self.transport.ranks, self._slots, 0)
        elif kind == BROADCAST:
            _spread(calls, self.transport.ranks, self._slots[calls[0].src], 0)
        elif kind == GATHER:
            _collect(calls, self._slots, 0)
        self.transport.control.publish(DONE, self.number)
        self.complete = True


class _Large(_Collective):
    """Each process works on its share of everyone's buffers."""

    __slots__ = ("_steps",)

    def __init__(self, transport: ShmTransport, number: int, calls: Sequence[Call]) -> None:
        super().__init__(transport, number, calls)
        self._steps = self._in_steps()

    def step(self) -> None:
        need = next(self._steps, None)
        if need is None:
            self.complete = True
        else:
            self.need = need

    def _in_steps(self) -> Iterator[_Need]:
        """Carry the collective out; yields what others must have reached before it goes on."""
        transport, calls, number = self.transport, self.calls, self.number
        control = transport.control
        transport.agree(number, calls)
        first = calls[0]
        sources = [first.src] if first.kind == BROADCAST else range(transport.launch.world_size)
        places = {rank: control.place(rank, number) for rank in sources}
        if all(places.values()):
            self._exchange([transport.window_view(place, first.array) for place in places.values()], 0)
        else:
            yield from self._through_scratch(places)
        control.publish(DONE, number)
        # Others may still read what lies in this process's buffers, or write results there.
        if first.kind != BROADCAST or first.src in transport.ranks:
            yield DONE, number

    def _through_scratch(self, places: dict[int, int]) -> Iterator[_Need]:
        """Pass the arrays that no one else can reach through the scratch area, a piece at a time.

        A piece has columns of an array that is seen as rows: one, or one for each rank's part.
        """
        transport, like, kind = self.transport, self.calls[0].array, self.calls[0].kind
        rows = transport.launch.world_size if kind == REDUCE_SCATTER else 1
        columns = like.size // rows
        scratch = {rank: transport.scratch[rank].view(like.dtype) for rank in places}
        length = transport.scratch.shape[1] // like.itemsize // rows
        staged = {
            rank: call.array.reshape(rows, columns)
            for rank, call in zip(transport.ranks, self.calls, strict=True)
            if places.get(rank) == 0
        }
        for start in range(0, columns, length):
            stop = min(start + length, columns)
            pieces = {rank: area[: rows * (stop - start)] for rank, area in scratch.items()}
            for rank, array in staged.items():
                pieces[rank].reshape(rows, -1)[...] = array[:, start:stop]
            yield transport.next_stage()
            for rank, place in places.items():
                if place:
                    seen = transport.window_view(place, like).reshape(rows, columns)[:, start:stop]
                    pieces[rank] = seen.reshape(-1)
            self._exchange(list(pieces.values()), start)
            yield transport.next_stage()
            if kind == REDUCE:
                for rank, array in staged.items():
                    array[0, start:stop] = pieces[rank]

    def _exchange(self, views: list[np.ndarray], start: int) -> None:
        """This process's part of one piece that begins at element `start`."""
        first, transport = self.calls[0], self.transport
        if first.kind == REDUCE:
            low, high = tree.share(views[0].size, transport.launch.procs, transport.launch.proc)
            pieces = [view[low:high] for view in views]
            tree.reduce_into(pieces, pieces, first.op)
        elif first.kind == REDUCE_SCATTER:
            _reduce_parts(self.calls, transport.ranks, views, start)
        elif first.kind == BROADCAST:
            _spread(self.calls, transport.ranks, views[0], start)
        else:
            _collect(self.calls, views, start)


def _reduce_parts(calls: Sequence[Call], ranks: Sequence[int], views: Sequence[np.ndarray], start: int) -> None:
    stop = start + views[0].size // (len(views) or 1)
    for rank, call in zip(ranks, calls, strict=True):
        assert call.result is not None
        tree.reduce_part(call.result[start:stop], views, rank, call.op)


def _spread(calls: Sequence[Call], ranks: Sequence[int], source: np.ndarray, start: int) -> None:
    for rank, call in zip(ranks, calls, strict=True):
        if rank != call.src:
            call.array[start : start + source.size] = source


def _collect(calls: Sequence[Call], views: Sequence[np.ndarray], start: int) -> None:
    for call in calls:
        assert call.result is not None
        for row, view in zip(call.result, views, strict=True):
            row[start : start + view.size] = view


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
