"""The transport between processes of one host: they read and write each other's memory.

A small collective travels through a slot per rank in the control page, with one round of
flags: everyone reads everything. For a larger one, each process combines its share of
the elements over all ranks' buffers, in tree order, and writes it into all of them. If
the buffers come from `allocate`, nothing else is copied; others pass through a scratch
area, piece by piece.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

import numpy as np

from ....core.environment import Launch
from ....core.errors import DistributedError
from ...protocol.guard import Signature
from ..base import COMPLETED, Pending, Transport, advance_others, ended, moves, rests
from ..calls import Allocate, Call, Gather
from ..mail import Delivery, Letters, Message
from . import slots
from .collectives import Bridge, Collective, Need
from .control import ARRIVE, DEPTH, DONE, STAGE, Control
from .mailbox import Mailbox, room_for
from .slots import Slots
from .ways import AtOnce, InShares, table
from .windows import Windows

_SCRATCH_TOTAL = 32 << 20
_PAGE = 4096


def bytes_needed(launch: Launch) -> int:
    """The shared memory that a transport takes at once; buckets and other allocations come on top."""
    world = launch.world_size
    return Control.bytes_needed(launch) + slots.bytes_needed(world) + world * _scratch_bytes(world)


def _scratch_bytes(world_size: int) -> int:
    return min(1 << 19, _SCRATCH_TOTAL // world_size // _PAGE * _PAGE or _PAGE)


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
        extra = scratch + slots.bytes_needed(world)
        self.control = Control(launch, job, extra, self.timeout, room_for(world))
        self._letters = Letters(launch.world_rank)
        self._mailbox = Mailbox(launch, self.control, self._letters, self._while_mail_waits)
        self.control.meanwhile = self.meanwhile
        memory = np.frombuffer(self.control.map, np.uint8)[self.control.extra :][:extra]
        self.scratch = memory[:scratch].reshape(world, self._scratch_bytes)
        self.slots = Slots(memory[scratch:], world)
        self.windows = Windows(launch, job)
        self.under_way: deque[Collective] = deque()
        self._moving = threading.Lock()  # whose holder moves the first of them: several threads may wait
        self.alone = len(self.ranks) == 1
        self._shares = InShares(self)
        at_once = AtOnce(self)
        self._ways = {case: way.post for case, way in table(self, at_once, self._shares).items()}
        self.now = at_once.now
        self._begun = 0
        self._stage = 0
        self._past = 0  # up to which collective nobody reads anything any more
        # What this process's only rank has said last in each entry of the ring: it need not say it again.
        self._recorded: list[Signature | None] = [None] * DEPTH
        moves(self)

    def post(self, calls: Sequence[Call]) -> Pending:
        if self.failure is not None:
            self.refuse_after_failure()
        call = calls[0]
        if isinstance(call, Allocate):
            self.allocate(calls)
            return COMPLETED
        alone = self.alone and not self.under_way
        return self._ways[call.extent <= self.slots.limit, alone, not call.background](calls)

    def bridged(self, calls: Sequence[Call], bridge: Bridge) -> None:
        """Carry out a larger reduction over this host's ranks and those that `bridge` reaches."""
        self.finish(self._shares.post(calls, bridge).number)

    def begin(self, signature: Signature, place: int = 0, depth: int = DEPTH) -> int:
        """Begin a collective of this process's only rank, whose array lies at `place`; returns its number.

        depth: after how many collectives what it uses is used again.
        """
        number = self._begun + 1
        if number - depth > self._past:
            self._make_room(number - depth)
        self._begun = number
        entry = number % DEPTH
        if place or self._recorded[entry] is not signature:
            self.control.record(self.ranks.start, number, signature, place)
            self._recorded[entry] = None if place else signature
        return number

    def begin_all(self, calls: Sequence[Call], places: Sequence[int], depth: int = DEPTH) -> int:
        """Begin a collective of this process's ranks, whose arrays lie at `places`; returns its number."""
        number = self._begun + 1
        if number - depth > self._past:
            self._make_room(number - depth)
        self._begun = number
        self._recorded[number % DEPTH] = None
        for rank, call, place in zip(self.ranks, calls, places, strict=True):
            self.control.record(rank, number, call.signature, place)
        return number

    def meet(self, number: int, signature: Signature) -> None:
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
        if message.target not in self.ranks:
            return self._mailbox.send(message)
        with self._mailbox.moving:
            return self._letters.send(message)

    def receive(self, message: Message) -> Delivery:
        self.refuse_after_failure()
        self._mailbox.timeout = self.timeout
        if message.source not in self.ranks:
            return self._mailbox.receive(message)
        with self._mailbox.moving:
            return self._letters.receive(message)

    def fail(self, rank: int, reason: str, secondary: bool) -> None:
        self.control.fail(rank, reason, secondary)

    def close(self) -> None:
        if self.failure is None:
            self._mailbox.take_what_is_left()
            self._letters.warn_of_lost()
            self.failure = ended("shared memory")
            self.control.finish()

    def release(self) -> bool:
        if self.failure is not None:
            return False
        self.finish(self._begun)
        left = "has left the group (destroy_process_group)"
        self.control.fail(self.launch.world_rank(self.ranks.start), left, secondary=False)
        self.close()
        rests(self)
        # Its parts know it and one another: the memory would stay mapped until a collection of garbage.
        vars(self).clear()
        return True

    def progress(self) -> None:
        """Do what can be done without waiting, in the order in which collectives were posted."""
        control = self.control
        try:
            while (head := self._head()) is not None:
                need = column, target = head.need
                if not control.reached(column, target):
                    head.began = head.began or time.monotonic()
                    control.check(column, target, head.number, head.began, self.timeout)
                    return
                head.began = 0.0
                self._move(head, need)
        except DistributedError as error:
            raise self.failed(error) from None

    def advance(self) -> None:
        self._mailbox.advance()
        self._move_collectives()

    def meanwhile(self) -> None:
        """What is done while a collective is waited for here."""
        self._mailbox.advance()
        advance_others(self)

    def _while_mail_waits(self) -> None:
        self._move_collectives()
        advance_others(self)

    def _move_collectives(self) -> None:
        if self.failure is None and self.under_way:
            try:
                self.progress()
            except DistributedError:
                return  # it is kept in `failure`, which whoever waits for a collective here is told

    def finish(self, number: int) -> None:
        """Return when the collective `number`, and so all before it, is complete."""
        control = self.control
        try:
            while (head := self._head()) is not None and head.number <= number:
                need = head.need
                control.wait(*need, head.number, self.timeout)
                self._move(head, need)
        except DistributedError as error:
            raise self.failed(error) from None

    def _head(self) -> Collective | None:
        """The first collective under way."""
        try:
            return self.under_way[0]
        except IndexError:
            return None

    def _move(self, head: Collective, need: Need) -> None:
        """Let `head` go on, which has what it needed, unless another thread has done so."""
        with self._moving:
            if not head.complete and head.need == need:
                head.step()
                if head.complete:
                    self.under_way.popleft()

    def agree(self, number: int, signature: Signature) -> None:
        """Raise MismatchError unless all ranks called the same under `number`."""
        if not self.control.agreed(number, signature.digest):
            raise self.control.mismatch(number)

    def _make_room(self, number: int) -> None:
        """Wait until nobody reads any more what belongs to the collectives up to `number`."""
        self.finish(number)
        try:
            self.control.wait(DONE, number, number, self.timeout)
        except DistributedError as error:
            raise self.failed(error) from None
        self._past = self.control.least_done()

    def next_stage(self) -> Need:
        """Say that this process is done with a step within a collective; what to wait for next."""
        self._stage += 1
        self.control.publish(STAGE, self._stage)
        return STAGE, self._stage

    def allocate(self, calls: Sequence[Call]) -> None:
        """Make an array for each of this process's ranks that all processes map. Collective."""
        wanted = [call for call in calls if isinstance(call, Allocate)]
        # All calls go along: ranks of this process that do not agree are found out there.
        self.windows.allocate(wanted, partial(self._gather, calls))

    def _gather(self, calls: Sequence[Call], array: np.ndarray) -> np.ndarray:
        """Rows of all ranks; each process contributes one array for all its ranks."""
        rows = np.empty((self.launch.world_size, array.size), array.dtype)
        self.post([Gather(call.signature, array, rows) for call in calls]).wait()
        return rows
