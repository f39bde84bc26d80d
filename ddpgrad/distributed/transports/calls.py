"""The collectives that every transport carries, one class for each; all others are built from them.

A call is one rank's part in one collective. Where this process can read the arrays of all ranks, in its own
memory or in shared memory, `complete` makes the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..protocol import tree
from ..protocol.guard import Signature

NOTHING = np.empty(0, np.uint8)
"""What travels in a barrier."""

Copy = tuple[int, int, int, int]
"""From which rank; where the elements begin in its array, and in the result; and how many they are."""


class Call:
    """One rank's part in one collective.

    array        the rank's contribution, one-dimensional and contiguous
    result       what the collective fills on this rank: `array` itself where it is overwritten
    background   the caller goes on, and waits later
    extent       the most bytes that a rank contributes: transports choose their ways by it
    op           how the arrays, or a part of them, are combined; "" where elements are copied
    """

    __slots__ = ("array", "background", "extent", "result", "signature")
    op = ""

    def __init__(
        self,
        signature: Signature,
        array: np.ndarray = NOTHING,
        background: bool = False,
        result: np.ndarray | None = None,
    ) -> None:
        self.signature = signature
        self.array = array
        self.result: Any = array if result is None else result
        self.background = background
        self.extent = array.nbytes

    def copies(self, rank: int, world: int) -> Sequence[Copy] | None:
        """What the result of `rank` is made of, where that is elements of others; None: not always the same.

        Of two calls with one signature and arrays of one size both are alike.
        """
        return ()

    def contributes(self, rank: int) -> bool:
        """Whether other ranks read the array of `rank`."""
        return True

    def complete(
        self, calls: Sequence[Call], ranks: Sequence[int], arrays: Sequence[np.ndarray], start: int = 0
    ) -> None:
        """Make the results of `calls`, which are the parts of `ranks`, from the arrays of all ranks.

        start: the element at which `arrays` begin, where they are pieces of the ranks' arrays.
        """
        for rank, call in zip(ranks, calls, strict=True):
            call.take(rank, arrays, start)

    def take(self, rank: int, arrays: Sequence[np.ndarray], start: int = 0) -> None:
        """Make the result of `rank`, whose part this is; see `complete`."""


class Reduce(Call):
    """Combine the arrays of all ranks by `op`. The result overwrites every rank's array.

    `complete` takes whole arrays: a transport that cuts them adds its own share of each piece.
    """

    __slots__ = ("op",)

    def __init__(
        self, signature: Signature, array: np.ndarray, op: str = "sum", background: bool = False
    ) -> None:
        super().__init__(signature, array, background)
        self.op = op

    def complete(
        self, calls: Sequence[Call], ranks: Sequence[int], arrays: Sequence[np.ndarray], start: int = 0
    ) -> None:
        tree.reduce_into([call.array for call in calls], arrays, self.op)


class ReduceScatter(Call):
    """Combine the arrays of all ranks by `op`. `result` gets this rank's of `world_size` equal parts."""

    __slots__ = ("op",)

    def __init__(
        self,
        signature: Signature,
        array: np.ndarray,
        result: np.ndarray,
        op: str = "sum",
        background: bool = False,
    ) -> None:
        super().__init__(signature, array, background, result)
        self.op = op

    def take(self, rank: int, arrays: Sequence[np.ndarray], start: int = 0) -> None:
        stop = start + arrays[0].size // len(arrays)
        tree.reduce_part(self.result[start:stop], arrays, rank, self.op)


class Gather(Call):
    """Row r of `result` gets the array of rank r."""

    __slots__ = ()

    def __init__(
        self, signature: Signature, array: np.ndarray, result: np.ndarray, background: bool = False
    ) -> None:
        super().__init__(signature, array, background, result)

    def copies(self, rank: int, world: int) -> Sequence[Copy]:
        n = self.array.size
        return [(source, 0, source * n, n) for source in range(world)]

    def take(self, rank: int, arrays: Sequence[np.ndarray], start: int = 0) -> None:
        for row, array in zip(self.result, arrays, strict=True):
            row[start : start + array.size] = array


class Broadcast(Call):
    """The array of rank `src` overwrites that of every other rank."""

    __slots__ = ("src",)

    def __init__(self, signature: Signature, array: np.ndarray, src: int, background: bool = False) -> None:
        super().__init__(signature, array, background)
        self.src = src

    def contributes(self, rank: int) -> bool:
        return rank == self.src

    def copies(self, rank: int, world: int) -> Sequence[Copy]:
        return [(self.src, 0, 0, self.array.size)] if rank != self.src else ()

    def take(self, rank: int, arrays: Sequence[np.ndarray], start: int = 0) -> None:
        if rank != self.src:
            source = arrays[self.src]
            self.array[start : start + source.size] = source


class AllToAll(Call):
    """`result` gets what each rank has for this one, by rank. `counts` says how many elements go from whom to whom."""

    __slots__ = ("counts",)

    def __init__(
        self,
        signature: Signature,
        array: np.ndarray,
        result: np.ndarray,
        counts: Counts,
        background: bool = False,
    ) -> None:
        super().__init__(signature, array, background, result)
        self.counts = counts
        self.extent = counts.most * array.itemsize

    def copies(self, rank: int, world: int) -> Sequence[Copy] | None:
        if not self.counts.fixed:
            return None
        blocks = [(source, *self.counts.block(source, rank)) for source in range(world)]
        return [(source, there.start, here.start, here.stop - here.start) for source, there, here in blocks]

    def take(self, rank: int, arrays: Sequence[np.ndarray], start: int = 0) -> None:
        for source, array in enumerate(arrays):
            there, here = self.counts.block(source, rank)
            self.result[here] = array[there]


class Barrier(Call):
    """Nothing travels: it is complete when all ranks have called."""

    __slots__ = ()

    def __init__(self, signature: Signature, background: bool = False) -> None:
        super().__init__(signature, background=background)


class Allocate(Call):
    """Make an array that the transport reaches without copying: `result`, once it is complete.

    `array` is a template for length and dtype, and is never read.
    """

    __slots__ = ()

    def __init__(self, signature: Signature, template: np.ndarray) -> None:
        super().__init__(signature, template)
        self.result = None


class Counts:
    """How many elements each rank sends to each other one; the same on all ranks.

    table         table[s, d]: how many rank s has for rank d
    sent_at       where those begin in the array of s
    received_at   where they begin in the result of d
    received      how many elements each rank gets
    most          the most that a rank contributes
    fixed         the collective's signature says all of them
    """

    __slots__ = ("_blocks", "fixed", "most", "received", "received_at", "sent_at", "table")

    def __init__(self, table: np.ndarray, fixed: bool = False) -> None:
        self.fixed = fixed
        self.table = table
        self.sent_at = np.cumsum(table, axis=1) - table
        self.received_at = np.cumsum(table, axis=0) - table
        self.received: list[int] = table.sum(axis=0).tolist()
        self.most = int(table.sum(axis=1).max())
        self._blocks: dict[tuple[int, int], tuple[slice, slice]] = {}

    def block(self, source: int, target: int) -> tuple[slice, slice]:
        """The elements from `source` to `target`: where `source` has them, and where `target` wants them."""
        found = self._blocks.get((source, target))
        if found is None:
            n, at, to = (int(a[source, target]) for a in (self.table, self.sent_at, self.received_at))
            found = self._blocks[source, target] = slice(at, at + n), slice(to, to + n)
        return found


@lru_cache(maxsize=256)
def counts_between(world: int, elements: int, source: int | None = None, target: int | None = None) -> Counts:
    """Each of `world` ranks, or only `source`, has so many elements for each one, or only for `target`."""
    table = np.zeros((world, world), np.int64)
    table[slice(None) if source is None else source, slice(None) if target is None else target] = elements
    return Counts(table, fixed=True)
