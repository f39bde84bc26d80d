"""A worker process of a DataLoader: reads samples, and sends batches through shared memory.

Messages to a worker: `Epoch`, `Task`, and None or the end of the connection, which end it. It answers
each task with a `Result`. The arrays of a batch go into a slot, a piece of shared memory that the
worker made and the program lends to tensors; with a later task it says which slots are free again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import reduction
from typing import Any

import numpy as np

from ...backend.cpu import threads
from ...core import environment
from .fetch import Read, Recipe
from .packing import pack, unpack
from .seeding import seed_worker
from .shared_memory import Segment, fill, spans

_GRACE = 3.0  # seconds that a worker may go on after the program has ended
# Bytes of a pickle that go through the connection; more goes through shared memory, so that a worker is
# never blocked by a program that is busy sending to it.
_INLINE = 4096
_LOOK_FOR_PARENT = 1.0  # seconds between looks at whether the parent lives
# What a worker does, in `Start.progress`.
STARTING, NOTHING, SAMPLE, OTHER_SAMPLE = range(4)  # the last: an index that is no integer


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker knows of itself: its number, of how many, its seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a DataLoader, who it is; None in any other process."""
    return _info


@dataclass(frozen=True)
class Epoch:
    """Begin an epoch. seeded: give every sample a seed of its own."""

    base_seed: int
    seeded: bool


@dataclass(frozen=True)
class Task:
    """Read one element of the order; of an iterable dataset the next, and only skip it where `work` is False."""

    number: int
    work: Any
    free_slots: list[int]


@dataclass
class Result:
    """The answer to a task.

    data: the pickle of the batch, whose arrays lie at `places` of slot `slot`; a long pickle lies at the last
    of the places, and `data` is empty. new_slot: the size of the slot, where it is new and its descriptor
    follows. dropped: slots that the worker has given up. failed: `data` is (type of the exception, the sample,
    the traceback). ended: the iterable dataset has no more.
    """

    number: int
    data: bytes = b""
    places: list[tuple[int, int]] = field(default_factory=list)
    slot: int | None = None
    new_slot: int | None = None
    dropped: list[int] = field(default_factory=list)
    failed: bool = False
    ended: bool = False


@dataclass(frozen=True)
class Start:
    """What a worker is started with. cargo: (recipe, worker_init_fn) for a forked one, for others the pickle of that,
    whose arrays lie at `places` of `arrays`.

    ranks: the variables that say which rank the program is, such as RANK, for datasets that read a shard of their own.
    progress: two int64 words that the program looks at when a worker dies or stalls: what it does, and
    the index of the sample that it reads.
    """

    id: int
    num_workers: int
    base_seed: int
    cargo: Any
    arrays: Segment
    places: list[tuple[int, int]]
    progress: Segment
    ranks: dict[str, str]


class Name(str):
    """The name of a worker's process, by which it becomes the worker of a rank before it imports the program.

    A process that is not forked unpickles its name first of all.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (str(self), environment.ranks())


def _named(name: str, ranks: dict[str, str]) -> str:
    environment.be_worker(**ranks)
    return name


def main(connection: Any, start: Start) -> None:
    """Run a worker until the connection ends. Called in the new process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's to handle: it ends its workers
    environment.be_worker(**start.ranks)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _yield_to_the_program()
    threads.set_threads(1)
    _Worker(connection, start).run()


def _yield_to_the_program() -> None:
    """Let the scheduler wake this process without taking the core from the program, which sends it work."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # then waking it costs the program some milliseconds
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _end_with_parent() -> None:
    """End a worker whose parent is gone, also in the middle of a sample."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT)
    time.sleep(_GRACE)  # an idle worker sees the end of its connection, and ends in order
    os._exit(1)


class _Worker:
    def __init__(self, connection: Any, start: Start) -> None:
        global _info
        self._connection = connection
        self._id = start.id
        self._progress = start.progress.array[:16].view(np.int64)
        self._slots = _Slots()
        self._sample: Any = None
        self._fetch: _Fetch | None = None
        self._failed: Exception | None = None
        seed_worker(start.base_seed, start.id)
        try:
            shared = start.arrays.private().array
            sent = isinstance(start.cargo, bytes)
            recipe, init = (
                unpack(start.cargo, [shared[a:b] for a, b in start.places]) if sent else start.cargo
            )
            self._recipe: Recipe = recipe
            _info = WorkerInfo(start.id, start.num_workers, start.base_seed + start.id, recipe.dataset)
            if init is not None:
                init(start.id)
        except Exception as error:
            self._failed = error

    def run(self) -> None:
        """Do what messages say, until None comes or the program is gone."""
        self._watch(None)
        with contextlib.suppress(EOFError, ConnectionError):
            while (message := self._connection.recv()) is not None:
                if isinstance(message, Epoch):
                    self._begin(message)
                else:
                    self._answer(message)

    def _begin(self, epoch: Epoch) -> None:
        global _info
        if self._failed is not None:
            return
        if _info is not None and _info.seed != epoch.base_seed + self._id:
            seed_worker(epoch.base_seed, self._id)
            _info = WorkerInfo(_info.id, _info.num_workers, epoch.base_seed + self._id, _info.dataset)
        self._fetch = _Fetch(self._recipe, epoch, self._watch)

    def _watch(self, index: Any) -> None:
        """Note which sample is read; None between samples."""
        self._sample = index
        if index is None:
            self._progress[0] = NOTHING
        elif isinstance(index, (int, np.integer)):
            self._progress[1] = index
            self._progress[0] = SAMPLE
        else:
            self._progress[0] = OTHER_SAMPLE

    def _answer(self, task: Task) -> None:
        self._slots.free.extend(task.free_slots)
        result = Result(task.number)
        segment: Segment | None = None
        try:
            if self._failed is not None:
                raise self._failed
            assert self._fetch is not None
            try:
                result.data, buffers = pack(self._fetch(task.work))
            except _Exhausted:
                result.ended = True
                buffers = []
            if len(result.data) > _INLINE:
                buffers.append(memoryview(result.data))
                result.data = b""
            if buffers:
                result.places = spans(buffers)
                segment = self._slots.take(result)
                fill(self._slots[result.slot], buffers, result.places)
        except Exception as error:
            segment = None
            reason = (_sendable(type(error)), _sendable(self._sample), traceback.format_exc())
            result = Result(task.number, pack(reason)[0], dropped=result.dropped, failed=True)
        self._watch(None)
        self._connection.send(result)
        if segment is not None:
            reduction.send_handle(self._connection, segment.fd, None)
            segment.forget_file()


class _Exhausted(Exception):
    """The iterable dataset has no more samples."""


class _Fetch:
    """Reads elements of one epoch's order."""

    def __init__(self, recipe: Recipe, epoch: Epoch, watch: Any) -> None:
        self._read: Read = recipe.reader(epoch.base_seed if epoch.seeded else None, watch)
        self._recipe = recipe
        self._elements: Iterator[Any] | None = None

    def __call__(self, work: Any) -> Any:
        if not self._recipe.iterable:
            return self._read(work)
        if self._elements is None:
            self._elements = self._recipe.elements()
        try:
            element = next(self._elements)
        except StopIteration:
            raise _Exhausted from None
        return self._read(element) if work else None


class _Slots:
    """The shared memory that batches leave in."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self._all: dict[int, Segment] = {}
        self._made = 0

    def __getitem__(self, slot: int | None) -> Segment:
        assert slot is not None
        return self._all[slot]

    def take(self, result: Result) -> Segment | None:
        """Choose a slot for `result.places`, and say so in `result`; the segment, if it is new."""
        size = result.places[-1][1]
        for slot in self.free:
            if self._all[slot].size >= size:
                self.free.remove(slot)
                result.slot = slot
                return None
        if self.free:  # too small: batches have grown
            dropped = self.free.pop()
            del self._all[dropped]
            result.dropped.append(dropped)
        segment = Segment.create(size + size // 8)
        result.slot, result.new_slot = self._made, segment.size
        self._all[self._made] = segment
        self._made += 1
        return segment


def _sendable(value: Any) -> Any:
    """`value`, or None where it cannot be sent."""
    try:
        pack(value)
    except Exception:
        return None
    return value
