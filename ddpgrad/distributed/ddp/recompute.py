"""Sum some buckets a second time, in other processes, and compare the bits.

A processor or memory that errs in a sum makes a gradient that is wrong and the same on all ranks: the replicas
stay equal, and nothing else finds it. A sum has the same bits whoever makes it (see `tree`), so one that was
made twice can be compared. The ranks make the second one by parts, each of a part that another process
summed at first; if the bits differ, all ranks sum that part, and what most of them get counts as right.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...core.errors import MismatchError
from ..communicator.communicator import ArrayWork, Communicator
from ..protocol import tree
from ..protocol.guard import blaming, named
from ..ranks import world
from .averages import FiniteWatch

_UNIT = 64  # elements; parts have a multiple of it, as those of `tree.share`


class RecomputedSums:
    """`all_reduce` of a communicator, where about one in `every` is made a second time.

    Which ones is drawn at random, and alike on all ranks. ranks: those of the communicator, by their numbers in the
    world. progress: knows the step. checks: how many sums were made twice.
    """

    def __init__(self, c: Communicator, ranks: Sequence[int], every: int, progress: FiniteWatch) -> None:
        if c.transport == "nccl":
            raise NotImplementedError(
                "--verify: sums that NCCL carries are not made a second time; leave it out, or set "
                "DDPGRAD_TRANSPORT=shm (or mpi)"
            )
        launch = world.current().launch.subset(ranks)
        assert launch is not None
        self.communicator, self.launch, self.progress = c, launch, progress
        # The part that another process sums at first, counted from a rank's own.
        self.distance = -(-c.size // launch.procs)
        self.checks = 0
        self._every, self._draws = every, random.Random(0)

    def all_reduce(self, array: np.ndarray, op: str, label: str, async_op: bool) -> ArrayWork:
        """As `Communicator.all_reduce` of a flat array.

        Works are waited for in one order on all ranks; `wait` raises MismatchError where bits of two sums differ.
        """
        if self._draws.random() * self._every >= 1.0:
            return self.communicator.all_reduce(array, op, label, async_op)
        self.checks += 1
        return _Twice(self, array, op, label)


class _Twice(ArrayWork):
    """A sum that is made twice."""

    __slots__ = ("_again", "_array", "_label", "_op", "_own", "_second", "_sums")

    def __init__(self, sums: RecomputedSums, array: np.ndarray, op: str, label: str) -> None:
        c = sums.communicator
        self._sums, self._array, self._op, self._label = sums, array, op, label
        self._own = self._parts()
        first = c.all_reduce(array, op, label, async_op=True)
        super().__init__(first._pending, first._finish)
        # Rank r makes part r + distance.
        turned = np.roll(self._own, -sums.distance, axis=0)
        self._second, again = c.start_reduce_scatter(turned, op, f"{label} (a second time)")
        self._again: ArrayWork | None = again

    def wait(self) -> None:
        super().wait()
        again, self._again = self._again, None
        if again is not None:
            again.wait()
            self._compare()

    def _parts(self) -> np.ndarray:
        """A copy of the array as it is, a row for each part, with zeros at the end."""
        size = self._sums.communicator.size
        parts = np.zeros((size, -(-self._array.size // (size * _UNIT)) * _UNIT), self._array.dtype)
        parts.reshape(-1)[: self._array.size] = self._array
        return parts

    def _compare(self) -> None:
        first = self._parts()
        mine = [_checksum(part) for part in (*first, self._second)]
        rows = np.array(self._sums.communicator.all_gather(np.array(mine, np.uint32), "checksums of sums"))
        again = np.roll(rows[:, -1], self._sums.distance)  # by part
        different = np.flatnonzero((rows[:, :-1] != again).any(axis=0))
        if different.size:
            part = int(different[0])
            raise self._error(part, first[part], rows[:, part])

    def _error(self, part: int, first: np.ndarray, checksums: np.ndarray) -> MismatchError:
        """The error for `part`, of which this rank got `first`, and all ranks `checksums`. Collective."""
        sums, c = self._sums, self._sums.communicator
        third = np.empty_like(first)
        tree.reduce_into([third], c.all_gather(self._own[part], "parts that differ"), self._op)
        differs = (first != third) & ~(np.isnan(first) & np.isnan(third))
        place = part * first.size + int(differs.argmax()) if differs.any() else -1
        rows = c.all_gather(np.array([_checksum(third), place], np.int64), "sums of the parts that differ")
        right = Counter(int(row[0]) for row in rows).most_common(1)[0][0]
        wrong = [rank for rank in range(c.size) if checksums[rank] != right]
        where = f"in step {sums.progress.steps + 1}, in the bucket of '{self._label}'"
        if len(wrong) == c.size:
            element = max(int(row[1]) for row in rows)
            culprits = self._summed(element)
            by = f" by the process of {self._named(culprits)}" if culprits else ""
            what = f"{where}, element {element} was summed wrong{by}, and all ranks have that"
        elif wrong:
            culprits, element = wrong, max(int(rows[rank][1]) for rank in wrong)
            what = f"{where}, {self._named(wrong)} got another sum than the rest, from element {element} on"
        else:
            culprits = [(part - sums.distance) % c.size]
            what = f"{where}, the sum was right, and {self._named(culprits)} erred in the second one"
        error = MismatchError(
            f"gradients were summed twice, and the bits differ: {what}. The program does the same on all ranks, so a "
            "processor or memory errs there: run the machine's diagnostics, leave it out, and go on from a checkpoint "
            "before this step."
        )
        return blaming(error, [sums.launch.world_rank(rank) for rank in culprits])

    def _summed(self, element: int) -> list[int]:
        """The ranks of the process that sums `element`, where that is known: MPI deals shares of pieces."""
        launch = self._sums.launch
        if self._sums.communicator.transport in ("shm", "virtual"):
            for proc in range(launch.procs):
                start, stop = tree.share(self._array.size, launch.procs, proc)
                if start <= element < stop:
                    return [*launch.block(proc)]
        return []

    def _named(self, ranks: Sequence[int]) -> str:
        return named([self._sums.launch.world_rank(rank) for rank in ranks])


def _checksum(array: np.ndarray) -> int:
    nan = np.isnan(array)
    if nan.any():  # which of the many NaNs a sum becomes is the processor's choice
        array = np.where(nan, array.dtype.type("nan"), array)
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)
