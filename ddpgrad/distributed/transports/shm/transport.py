"""The transport between processes of one host: they read and write each other's memory.

A small collective travels through a slot per rank in the control page, with one round of
flags: everyone reads everything. For a larger one, each process combines its share of
the elements over all ranks' buffers, in tree order, and writes it into all of them. If
the buffers come from `allocate`, nothing else is copied; others pass through a scratch
area, piece by piece.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ....core.environment import Launch, numba_enabled
from ....core.errors import DistributedError
from ...protocol import tree
from ...protocol.guard import Signature
from ..base import ALLOCATE, COMPLETED, GATHER, REDUCE, Call, Pending, Transport
from ..in_reach import complete
from ..mail import Delivery, Letters, Message
from .collectives import Bridge, Collective, Large, Need, Small
from .control import ARRIVE, DEPTH, DONE, STAGE, Control, is_crowded
from .mailbox import Mailbox, room_for
from .windows import Windows, address_of

if TYPE_CHECKING:
    from .compiled import Plans

SMALL = 4096
"""Bytes per rank up to which a collective takes the way of one flag round."""

CROWDED = 1 << 17
"""The same where processes share cores: a second round, in which each must get a core again, takes longer."""

# Small sums after which compiling pays: loading Numba takes as long as 100,000 of them.
_COMPILE_AFTER = 100
_SCRATCH_TOTAL = 32 << 20
_SLOTS_TOTAL = 16 << 20
_PAGE = 4096


def bytes_needed(launch: Launch) -> int:
    """The shared memory that a transport takes at once; buckets and what else is allocated come on top."""
    world = launch.world_size
    return Control.bytes_needed(launch) + world * (
        DEPTH * _small(world, is_crowded(launch)) + _scratch_bytes(world)
    )


def _small(world_size: int, crowded: bool) -> int:
    """Bytes per rank up to which one flag round is the shortest way."""
    if not crowded:
        return SMALL
    return max(SMALL, min(CROWDED, _SLOTS_TOTAL // DEPTH // world_size // _PAGE * _PAGE))


def _scratch_bytes(world_size: int) -> int:
    return min(1 << 19, _SCRATCH_TOTAL // world_size // _PAGE * _PAGE or _PAGE)


class _Share:
    """This process's share of arrays in windows, one of each rank.

    from_end: where the next sum begins. Turning round each time, it finds what the last one left in the cache.
    """

    __slots__ = ("from_end", "pieces")

    def __init__(self, pieces: list[np.ndarray]) -> None:
        self.pieces = pieces
        self.from_end = False


class ShmTransport(Transport):
    """Joins the processes of one host under the name `job`."""

    name = "shm"

    def __init__(
        self, launch: Launch, timeout: float | None, job: str, scratch_for: int | None = None
    ) -> None:
        """scratch_for: the number of ranks by which pieces are cut, if it is not this host's."""
        super().__init__(launch, timeout)
        world = launch.world_size
        self._scratch_bytes = _scratch_bytes(scratch_for or world)
        scratch = world * self._scratch_bytes
        extra, crowded = scratch + world * DEPTH * SMALL, scratch + world * DEPTH * _small(world, True)
        self.control = Control(launch, job, extra, crowded, self.timeout, room_for(world))
        self._small = _small(world, self.control.crowded)
        self._letters = Letters(launch.world_rank)
        self._mailbox = Mailbox(launch, self.control, self._letters)
        memory = np.frombuffer(self.control.map, np.uint8)[self.control.extra : self.control.sparse]
        self.scratch = memory[:scratch].reshape(world, self._scratch_bytes)
        slots = memory[scratch : scratch + world * DEPTH * self._small]
        self._slots = slots.reshape(DEPTH, world, self._small)
        self._slot_cache: dict[tuple[int, int, np.dtype], list[np.ndarray]] = {}
        self._alone = len(self.ranks) == 1
        # How small sums are made by compiled code, once there were enough of them.
        self._small_sums = 0
        self._compiled: Plans | None = None
        self._post_and_add: Callable[[np.ndarray, int, int], bool] | None = None
        self._plans: dict[Signature, int] = {}
        self._shares: dict[tuple[tuple[int, ...], int, np.dtype], _Share] = {}
        self.windows = Windows(launch, job)
        self._posted = 0
        self._stage = 0
        self._free_until = DEPTH
        self._under_way: deque[Collective] = deque()
        # What this process's only rank has said last in each entry of the ring: it need not say it again.
        self._recorded: list[Signature | None] = [None] * DEPTH

    def post(self, calls: Sequence[Call]) -> Pending:
        if self.failure is not None:
            self.refuse_after_failure()
        call = calls[0]
        if call.kind == ALLOCATE:
            self.allocate(calls)
            return COMPLETED
        if self._alone and not call.background and not self._under_way:
            if call.extent <= self._small:
                self._at_once(call, calls)
                return COMPLETED
            if call.kind == REDUCE and (place := self.windows.place(call.array)):
                self._in_windows(call, calls, place)
                return COMPLETED
        number = self._begin()
        control = self.control
        self._recorded[number % DEPTH] = None
        small = call.extent <= self._small
        slots = self._slots_for(number, call) if small else []
        for rank, call in zip(self.ranks, calls, strict=True):
            control.record(rank, number, call.signature, 0 if small else self.windows.place(call.array))
            # Ranks of this process that do not agree are found out when all have arrived.
            array = call.array
            if (
                slots
                and call.src in (rank, -1)
                and array.size <= slots[rank].size
                and array.dtype == slots[rank].dtype
            ):
                slots[rank][: array.size] = array
        control.publish(ARRIVE, number)
        collective = Small(self, number, calls, slots) if small else Large(self, number, calls)
        self._under_way.append(collective)
        return collective

    def reduce_now(self, array: np.ndarray, op: str, signature: Signature) -> bool:
        if (
            not 0 < array.nbytes <= self._small
            or not self._alone
            or self._under_way
            or self.failure is not None
        ):
            return False
        number = self._begin_small(signature)
        plan = self._plans.get(signature)
        if plan is None:
            plan = self._plan(array, op, signature)
        if plan and self._post_and_add(array, plan, number):  # type: ignore[misc]
            return True
        slots = self._slot_views(number, array.size, array.dtype)
        if not plan:
            slots[self.ranks.start][...] = array
        self._meet(number, signature)
        tree.reduce_into((array,), slots, op)
        self.control.publish(DONE, number)
        return True

    def _plan(self, array: np.ndarray, op: str, signature: Signature) -> int:
        """Where the numbers lie by which a compiled function adds arrays like this one; 0: none does."""
        if self._compiled is None:
            self._small_sums += 1
            if self._small_sums < _COMPILE_AFTER or not numba_enabled():
                return 0
            from .compiled import Plans, post_and_add

            slots = address_of(self._slots), self._small
            self._compiled, self._post_and_add = Plans(self.control, self.launch, slots), post_and_add
        if len(self._plans) >= self._compiled.capacity:
            self._plans.clear()
        plan = self._plans[signature] = self._compiled.make(
            len(self._plans), array.dtype, op, signature.digest
        )
        return plan

    def _at_once(self, call: Call, calls: Sequence[Call]) -> None:
        """A small collective for which its only rank here waits: as `Small`, on the shortest way."""
        number, array = self._begin_small(call.signature), call.array
        slots = self._slots_for(number, call)
        if slots:
            slots[self.ranks.start][: array.size] = array
        self._meet(number, call.signature)
        complete(calls, self.ranks, slots)
        self.control.publish(DONE, number)

    def _begin_small(self, signature: Signature) -> int:
        """The number of the small collective that begins now, once this rank has said what it calls."""
        number = self._begin()
        entry = number % DEPTH
        if self._recorded[entry] is not signature:
            self.control.record(self.ranks.start, number, signature, 0)
            self._recorded[entry] = signature
        return number

    def _in_windows(self, call: Call, calls: Sequence[Call], place: int) -> None:
        """A larger reduction for which its only rank here waits: as `Large`, on the shortest way."""
        number, array, control = self._begin(), call.array, self.control
        control.record(self.ranks.start, number, call.signature, place)
        self._recorded[number % DEPTH] = None
        self._meet(number, call.signature)
        places = control.places(number)
        if not all(places):  # somebody's array is elsewhere, and must be passed through the scratch area
            self._under_way.append(Large(self, number, calls))
            self.finish(number)
            return
        key = (places, array.size, array.dtype)
        share = self._shares.get(key)
        if share is None:
            low, high = tree.share(array.size, self.launch.procs, self.launch.proc)
            share = self._shares[key] = _Share([self.windows.view(p, array)[low:high] for p in places])
        tree.reduce_into(share.pieces, share.pieces, call.op, share.from_end)
        share.from_end = not share.from_end
        control.publish(DONE, number)
        try:
            control.wait(DONE, number, number, self.timeout)
        except DistributedError as error:
            raise self.failed(error) from None

    def bridged(self, calls: Sequence[Call], bridge: Bridge) -> None:
        """Carry out a larger reduction over this host's ranks and those that `bridge` reaches."""
        number = self._begin()
        self._recorded[number % DEPTH] = None
        for rank, call in zip(self.ranks, calls, strict=True):
            self.control.record(rank, number, call.signature, self.windows.place(call.array))
        self.control.publish(ARRIVE, number)
        self._under_way.append(Large(self, number, calls, bridge))
        self.finish(number)

    def _begin(self) -> int:
        """The number of the collective that begins now; its entry in the ring is free."""
        number = self._posted + 1
        if number > self._free_until:
            self._make_room(number)
        self._posted = number
        return number

    def _meet(self, number: int, signature: Signature) -> None:
        """Say that this process has come to a collective, wait for the others, and compare."""
        self.control.publish(ARRIVE, number)
        try:
            self.control.wait(ARRIVE, number, number, self.timeout)
            self.agree(number, signature)
        except DistributedError as error:
            raise self.failed(error) from None

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

    def agree(self, number: int, signature: Signature) -> None:
        """Raise MismatchError unless all ranks called the same under `number`."""
        if not self.control.agreed(number, signature.digest):
            raise self.control.mismatch(number)

    def _make_room(self, number: int) -> None:
        """Wait until the ring entry for `number` is no longer read by anyone."""
        self.finish(number - DEPTH)
        try:
            self.control.wait(DONE, number - DEPTH, number - DEPTH, self.timeout)
        except DistributedError as error:
            raise self.failed(error) from None
        self._free_until = self.control.least_done() + DEPTH

    def next_stage(self) -> Need:
        """Say that this process is done with a step within a collective; what to wait for next."""
        self._stage += 1
        self.control.publish(STAGE, self._stage)
        return STAGE, self._stage

    def _slots_for(self, number: int, call: Call) -> list[np.ndarray]:
        """The slots of all ranks for what they contribute to collective `number` (none if that is nothing)."""
        size = call.extent // call.array.itemsize
        return self._slot_views(number, size, call.array.dtype) if size else []

    def _slot_views(self, number: int, size: int, dtype: np.dtype) -> list[np.ndarray]:
        """The slots of all ranks for collective `number`, as arrays of `size` elements."""
        key = (number % DEPTH, size, dtype)
        views = self._slot_cache.get(key)
        if views is None:
            if len(self._slot_cache) > 4096:
                self._slot_cache.clear()
            slots = self._slots[number % DEPTH]
            views = self._slot_cache[key] = [slot[: size * dtype.itemsize].view(dtype) for slot in slots]
        return views

    def allocate(self, calls: Sequence[Call]) -> None:
        """Carry out an "allocate"."""
        self._shares.clear()  # which keep windows mapped
        self.windows.allocate(calls, partial(self._gather, calls))

    def _gather(self, calls: Sequence[Call], array: np.ndarray) -> np.ndarray:
        """Rows of all ranks; each process contributes one array for all its ranks."""
        rows = np.empty((self.launch.world_size, array.size), array.dtype)
        self.post([Call(GATHER, call.signature, array, result=rows) for call in calls]).wait()
        return rows
