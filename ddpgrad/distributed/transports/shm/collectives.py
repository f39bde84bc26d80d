"""Collectives under way in shared memory, as steps that wait for other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...protocol import tree
from ..base import Pending
from ..calls import AllToAll, Broadcast, Call, Reduce, ReduceScatter
from .control import ARRIVE, DONE

if TYPE_CHECKING:
    from .transport import ShmTransport

Need = tuple[int, int]
"""A column of the control page, and the number that all processes must have reached there."""


class Bridge(Protocol):
    """Joins a reduction on this host with the same one on other hosts, in the same pieces everywhere."""

    def all_direct(self, here: bool) -> bool:
        """True if the arrays lie in windows here, and on all other hosts."""
        ...

    def reduce(self, pieces: Sequence[np.ndarray], op: str) -> None:
        """Combine a piece over all ranks of the world, and write the result into this host's arrays."""
        ...


class Collective(Pending):
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
            if not self.complete:
                self.transport.meanwhile()
        return self.complete

    def wait(self) -> None:
        if not self.complete:
            self.transport.refuse_after_failure()
            self.transport.finish(self.number)


class Small(Collective):
    """One round of flags: the slots are complete when all have arrived."""

    __slots__ = ("_slots",)

    def __init__(
        self, transport: ShmTransport, number: int, calls: Sequence[Call], slots: list[np.ndarray]
    ) -> None:
        super().__init__(transport, number, calls)
        self._slots = slots

    def step(self) -> None:
        self.transport.agree(self.number, self.calls[0].signature)
        if self._slots:
            self.calls[0].complete(self.calls, self.transport.ranks, self._slots)
        self.transport.control.publish(DONE, self.number)
        self.complete = True


class Stepwise(Collective):
    """A collective whose steps are those of a generator."""

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

    def _in_steps(self) -> Iterator[Need]:
        """Carry the collective out; yields what others must have reached before it goes on."""
        raise NotImplementedError


class Large(Stepwise):
    """Each process works on its share of everyone's arrays.

    bridge: joins a reduction with the same one on other hosts.
    """

    __slots__ = ("_bridge",)

    def __init__(
        self, transport: ShmTransport, number: int, calls: Sequence[Call], bridge: Bridge | None = None
    ) -> None:
        super().__init__(transport, number, calls)
        self._bridge = bridge

    def _in_steps(self) -> Iterator[Need]:
        transport, calls, number = self.transport, self.calls, self.number
        control = transport.control
        first = calls[0]
        transport.agree(number, first.signature)
        sources = [rank for rank in range(transport.launch.world_size) if first.contributes(rank)]
        places = {rank: control.place(rank, number) for rank in sources}
        direct = all(places.values())
        if self._bridge is not None and not self._bridge.all_direct(direct):
            direct, places = False, dict.fromkeys(places, 0)
        if direct:
            self._work_on([transport.windows.view(place, first.array) for place in places.values()], 0)
        else:
            yield from self._through_scratch(places)
        control.publish(DONE, number)
        # Others may still read what lies in this process's arrays, or write results there.
        if any(rank in places for rank in transport.ranks):
            yield DONE, number

    def _through_scratch(self, places: dict[int, int]) -> Iterator[Need]:
        """Pass the arrays that no one else can reach through the scratch area, a piece at a time.

        A piece has columns of an array that is seen as rows: one, or one for each rank's part. What this process itself
        adds, its share of a piece, does not leave its arrays.
        """
        transport, first = self.transport, self.calls[0]
        like, sums = first.array, isinstance(first, Reduce)
        rows = transport.launch.world_size if isinstance(first, ReduceScatter) else 1
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
            mine = tree.share(stop - start, transport.launch.procs, transport.launch.proc) if sums else (0, 0)
            others = [slice(0, mine[0]), slice(mine[1], stop - start)]
            carried = [
                (array[:, start:stop][:, part], pieces[rank].reshape(rows, -1)[:, part])
                for rank, array in staged.items()
                for part in others
            ]
            for array, shared in carried:
                shared[...] = array
            yield transport.next_stage()
            for rank, place in places.items():
                if place:
                    seen = transport.windows.view(place, like).reshape(rows, columns)[:, start:stop]
                    pieces[rank] = seen.reshape(-1)
            if sums:
                pieces |= {rank: array[0, start:stop] for rank, array in staged.items()}
            self._work_on(list(pieces.values()), start)
            yield transport.next_stage()
            if sums:
                for array, shared in carried:
                    array[...] = shared

    def _work_on(self, views: list[np.ndarray], start: int) -> None:
        """Do this process's part of one piece. views: it, of each rank that contributes; it begins at `start`."""
        first, transport = self.calls[0], self.transport
        if isinstance(first, Reduce):
            low, high = tree.share(views[0].size, transport.launch.procs, transport.launch.proc)
            pieces = [view[low:high] for view in views]
            if self._bridge is None:
                tree.reduce_into(pieces, pieces, first.op)
            else:
                self._bridge.reduce(pieces, first.op)
        elif isinstance(first, Broadcast):
            sources = views * transport.launch.world_size  # of which only one is read
            first.complete(self.calls, transport.ranks, sources, start)
        else:
            first.complete(self.calls, transport.ranks, views, start)


class Pairwise(Stepwise):
    """What ranks have for each other passes through the scratch area, which has a part for each receiver."""

    __slots__ = ("_calls",)

    def __init__(self, transport: ShmTransport, number: int, calls: Sequence[AllToAll]) -> None:
        super().__init__(transport, number, calls)
        self._calls = calls

    def _in_steps(self) -> Iterator[Need]:
        transport, first = self.transport, self._calls[0]
        transport.agree(self.number, first.signature)
        counts = first.counts
        scratch = transport.scratch.view(first.array.dtype)
        world = len(scratch)
        length = scratch.shape[1] // world
        parts = scratch[:, : length * world].reshape(world, world, length)
        for start in range(0, int(counts.table.max()), length):
            for rank, call in zip(transport.ranks, self._calls, strict=True):
                for target in range(world):
                    there, _ = counts.block(rank, target)
                    piece = call.array[there][start : start + length]
                    parts[rank, target, : piece.size] = piece
            yield transport.next_stage()
            for rank, call in zip(transport.ranks, self._calls, strict=True):
                for source in range(world):
                    _, here = counts.block(source, rank)
                    piece = call.result[here][start : start + length]
                    piece[...] = parts[source, rank, : piece.size]
            yield transport.next_stage()
        transport.control.publish(DONE, self.number)
