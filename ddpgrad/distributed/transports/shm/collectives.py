"""The collectives of shared memory that do not end at once, each as steps that wait for other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...protocol import tree
from ..base import BROADCAST, EXCHANGE, REDUCE, REDUCE_SCATTER, Call, Pending
from ..in_reach import collect, complete, reduce_parts, spread
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
        return self.complete

    def wait(self) -> None:
        if not self.complete:
            self.transport.refuse_after_failure()
            self.transport.finish(self.number)


class Small(Collective):
    """One flag round: what everyone wrote into the slots is complete when all have arrived."""

    __slots__ = ("_slots",)

    def __init__(
        self, transport: ShmTransport, number: int, calls: Sequence[Call], slots: list[np.ndarray]
    ) -> None:
        super().__init__(transport, number, calls)
        self._slots = slots

    def step(self) -> None:
        self.transport.agree(self.number, self.calls[0].signature)
        complete(self.calls, self.transport.ranks, self._slots)
        self.transport.control.publish(DONE, self.number)
        self.complete = True


class Large(Collective):
    """Each process works on its share of everyone's buffers.

    bridge: what also has to do with the ranks of other hosts.
    """

    __slots__ = ("_bridge", "_steps")

    def __init__(
        self, transport: ShmTransport, number: int, calls: Sequence[Call], bridge: Bridge | None = None
    ) -> None:
        super().__init__(transport, number, calls)
        self._bridge = bridge
        self._steps = self._in_steps()

    def step(self) -> None:
        need = next(self._steps, None)
        if need is None:
            self.complete = True
        else:
            self.need = need

    def _in_steps(self) -> Iterator[Need]:
        """Carry the collective out; yields what others must have reached before it goes on."""
        transport, calls, number = self.transport, self.calls, self.number
        control = transport.control
        transport.agree(number, calls[0].signature)
        first = calls[0]
        if first.kind == EXCHANGE:
            yield from self._pairwise()
            control.publish(DONE, number)
            return
        sources = [first.src] if first.kind == BROADCAST else range(transport.launch.world_size)
        places = {rank: control.place(rank, number) for rank in sources}
        direct = all(places.values())
        if self._bridge is not None and not self._bridge.all_direct(direct):
            direct, places = False, dict.fromkeys(places, 0)
        if direct:
            self._exchange([transport.windows.view(place, first.array) for place in places.values()], 0)
        else:
            yield from self._through_scratch(places)
        control.publish(DONE, number)
        # Others may still read what lies in this process's buffers, or write results there.
        if first.kind != BROADCAST or first.src in transport.ranks:
            yield DONE, number

    def _through_scratch(self, places: dict[int, int]) -> Iterator[Need]:
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
                    seen = transport.windows.view(place, like).reshape(rows, columns)[:, start:stop]
                    pieces[rank] = seen.reshape(-1)
            self._exchange(list(pieces.values()), start)
            yield transport.next_stage()
            if kind == REDUCE:
                for rank, array in staged.items():
                    array[0, start:stop] = pieces[rank]

    def _pairwise(self) -> Iterator[Need]:
        """Pass what ranks have for each other through the scratch area, which has a part for each receiver."""
        transport, first = self.transport, self.calls[0]
        counts = first.counts
        assert counts is not None
        scratch = transport.scratch.view(first.array.dtype)
        world = len(scratch)
        length = scratch.shape[1] // world
        parts = scratch[:, : length * world].reshape(world, world, length)
        for start in range(0, int(counts.table.max()), length):
            for rank, call in zip(transport.ranks, self.calls, strict=True):
                for target in range(world):
                    there, _ = counts.block(rank, target)
                    piece = call.array[there][start : start + length]
                    parts[rank, target, : piece.size] = piece
            yield transport.next_stage()
            for rank, call in zip(transport.ranks, self.calls, strict=True):
                assert call.result is not None
                for source in range(world):
                    _, here = counts.block(source, rank)
                    piece = call.result[here][start : start + length]
                    piece[...] = parts[source, rank, : piece.size]
            yield transport.next_stage()

    def _exchange(self, views: list[np.ndarray], start: int) -> None:
        """This process's part of one piece that begins at element `start`."""
        first, transport = self.calls[0], self.transport
        if first.kind == REDUCE:
            low, high = tree.share(views[0].size, transport.launch.procs, transport.launch.proc)
            pieces = [view[low:high] for view in views]
            if self._bridge is None:
                tree.reduce_into(pieces, pieces, first.op)
            else:
                self._bridge.reduce(pieces, first.op)
        elif first.kind == REDUCE_SCATTER:
            reduce_parts(self.calls, transport.ranks, views, start)
        elif first.kind == BROADCAST:
            spread(self.calls, transport.ranks, views[0], start)
        else:
            collect(self.calls, views, start)
