"""Several ranks in one process: they are threads that pass one baton, and meet before each collective.

Only the holder of the baton runs Python; the baton changes hands only inside collectives,
always to the next rank that can go on. So a run is deterministic, and a debugger that stops
one rank stops nothing else but the waiting. The rank that arrives last at a collective
posts it to the transport for all ranks of the process. What may wait for other processes while
some of these ranks take no part in it happens without the baton: the others may be waited for there.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ...core.errors import DistributedError
from ..protocol import guard, progress
from ..transports.base import Patience, Pending, Transport, again
from ..transports.calls import Call
from ..transports.mail import Delivery, Message

T = TypeVar("T")


class Unwind(BaseException):
    """Ends a rank's thread because another rank failed. Never leaves `host.py`."""


class Slot:
    """A collective in which the ranks of this process meet, or a message; ranks wait for it."""

    __slots__ = ("_meeting", "calls", "error", "pending")

    def __init__(self, ranks: Sequence[int] = (), meeting: Meeting | None = None) -> None:
        self._meeting = meeting
        # By the rank's index within the process, in the transport's order.
        self.calls: dict[int, Call | None] = dict.fromkeys(ranks)
        self.pending: Pending | None = None
        self.error: Exception | None = None

    def ready(self) -> bool:
        """True when complete or failed; lets the transport advance."""
        if self.error is not None:
            return True
        if self.pending is None or (self._meeting is not None and self._meeting.posting):
            return False
        try:
            return self.pending.poll()
        except Exception as error:
            self.error = error
            return True

    def fields(self, local: int) -> Sequence[str]:
        """The call of rank `local`, in words."""
        if isinstance(self.pending, Delivery):
            return self.pending.message.fields
        call = self.calls.get(local)
        return () if call is None else call.signature.fields

    def from_outside(self) -> bool:
        """True when it is under way, and another process may complete it."""
        return self.pending is not None and self.pending.external

    def outcome(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error is not None:
            raise again(self.error)


class _Outside(Pending):
    """What a rank does without the baton."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def poll(self) -> bool:
        return self.done

    def wait(self) -> None:
        raise AssertionError("ranks wait for their turn")


def _mpi_has_one_thread() -> bool:
    """Whether an MPI library runs that lets one thread in at a time."""
    MPI = sys.modules.get("mpi4py.MPI")
    return MPI is not None and MPI.Is_initialized() and MPI.Query_thread() < MPI.THREAD_MULTIPLE


class PerRank(Protocol):
    """A part of the process that each rank has for itself: it is switched when the baton goes to another rank."""

    def enter(self, local: int) -> None: ...

    def leave(self) -> None: ...


class Baton:
    """Decides which of the ranks hosted here runs. Ranks are counted from 0 within the process."""

    def __init__(self, ranks: Sequence[int], per_rank: PerRank | None = None) -> None:
        self._ranks = ranks
        self._per_rank = per_rank
        self._gates = [threading.Semaphore(0) for _ in ranks]
        self._waiting: list[Slot | None] = [None] * len(ranks)
        self._ended = [False] * len(ranks)
        # Nobody holds the baton, for all ranks are outside: the first that is back takes it.
        self._free = False
        self._lock = threading.Lock()
        self.stopping = False
        self.holder = 0

    def hosts(self, ranks: Sequence[int]) -> bool:
        """Whether `ranks` are all ranks of this process."""
        return len(ranks) == len(self._ranks)

    def start(self) -> None:
        """Give the baton to the first rank."""
        self._gates[0].release()

    def receive(self, local: int) -> None:
        """Block until rank `local` holds the baton."""
        self._gates[local].acquire()
        self._take(local)

    def _take(self, local: int) -> None:
        self.holder = local
        progress.turn = self._ranks[local]
        if self._per_rank is not None:
            self._per_rank.enter(local)
        self._stop_if_asked()

    def wait(self, local: int, slot: Slot) -> None:
        """Let others run until `slot` is ready; raises what went wrong with it."""
        self._stop_if_asked()
        patience = Patience()
        self._waiting[local] = slot
        try:
            while not slot.ready():
                other = self._next_runnable(local)
                if other is not None:
                    self._hand_over(local, other)
                    patience = Patience()
                elif any(waited is not None and waited.from_outside() for waited in self._waiting):
                    patience.pause()
                    self._stop_if_asked()
                else:
                    raise self._nobody_can_go_on(slot)
        finally:
            self._waiting[local] = None
        slot.outcome()

    def outside(self, local: int, act: Callable[[], T], slot: Slot) -> T:
        """Do what may wait for other processes, while others run; those that wait for `slot` wait for its end.

        An MPI library that has one thread at a time lets no other run.
        """
        self._stop_if_asked()
        if _mpi_has_one_thread():
            return act()
        slot.pending = act_of_rank = _Outside()
        self._waiting[local] = slot
        if self._per_rank is not None:
            self._per_rank.leave()
        self._pass_on(local)
        try:
            return act()
        except Exception as error:
            slot.error = error
            raise
        finally:
            with self._lock:
                act_of_rank.done = True
                mine, self._free = self._free, False
            if not mine:
                self._gates[local].acquire()
            self._waiting[local] = None
            self._take(local)

    def _pass_on(self, local: int) -> None:
        """Give the baton to another rank, or to the first that is back from outside."""
        with self._lock:
            other = None if self.stopping else self._next_runnable(local)
            if other is None:
                # One that cannot go on finds out why by itself, in its loop.
                other = next(
                    (i for i in range(len(self._ended)) if not (self._ended[i] or self._is_outside(i))), None
                )
            self._free = other is None
        if other is not None:
            self._gates[other].release()

    def _is_outside(self, local: int) -> bool:
        slot = self._waiting[local]
        return slot is not None and isinstance(slot.pending, _Outside) and not slot.pending.done

    def step_aside(self, local: int) -> None:
        """Let another rank run a turn, if one can: a loop of polls must not keep the baton."""
        self._stop_if_asked()
        other = self._next_runnable(local)
        if other is not None:
            self._hand_over(local, other)

    def retire(self, local: int) -> None:
        """Rank `local` has ended; the baton goes on."""
        self._ended[local] = True
        self._pass_on(local)

    def _stop_if_asked(self) -> None:
        if self.stopping:
            raise Unwind

    def _next_runnable(self, local: int) -> int | None:
        count = len(self._ranks)
        for step in range(1, count):
            other = (local + step) % count
            if self._ended[other]:
                continue
            slot = self._waiting[other]
            if slot is None or slot.ready():
                return other
        return None

    def _hand_over(self, local: int, other: int) -> None:
        if self._per_rank is not None:
            self._per_rank.leave()
        self._gates[other].release()
        self.receive(local)

    def _nobody_can_go_on(self, slot: Slot) -> DistributedError:
        waiting = {
            self._ranks[local]: waited.fields(local)
            for local, waited in enumerate(self._waiting)
            if waited is not None
        }
        gone = [self._ranks[i] for i, call in slot.calls.items() if call is None and self._ended[i]]
        if gone:
            return guard.rank_failed(gone, guard.ENDED_WELL, waiting)
        return guard.deadlock(waiting)


class Meeting:
    """Brings the calls of this process's ranks together and hands them to a transport.

    ranks: who takes part, by index within the process. posting: the transport has calls in hand, without the baton.
    """

    def __init__(self, transport: Transport, baton: Baton, ranks: Sequence[int]) -> None:
        self.transport = transport
        self._baton = baton
        self._ranks = ranks
        self._entered = dict.fromkeys(ranks, 0)
        self._open: dict[int, Slot] = {}
        self._all = baton.hosts(ranks)
        self.posting = False

    def submit(self, local: int, call: Call) -> Pending:
        """Enter the next collective of rank `local`."""
        number = self._entered[local]
        self._entered[local] += 1
        slot = self._open.get(number)
        if slot is None:
            slot = self._open[number] = Slot(self._ranks, self)
        slot.calls[local] = call
        calls = [made for made in slot.calls.values() if made is not None]
        if len(calls) == len(self._ranks):
            del self._open[number]
            try:
                slot.pending = self._post(local, calls)
            except Exception as error:
                slot.error = error
        return _Ticket(slot, self._baton, local)

    def _post(self, local: int, calls: Sequence[Call]) -> Pending:
        if self._all:
            return self.transport.post(calls)
        self.posting = True
        try:
            return self._baton.outside(local, lambda: self.transport.post(calls), Slot())
        finally:
            self.posting = False

    def deliver(self, local: int, delivery: Delivery) -> Pending:
        """One end of a message, for rank `local` to wait for."""
        slot = Slot(meeting=self)
        slot.pending = delivery
        return _Ticket(slot, self._baton, local)


class Seat:
    """How one of several ranks of a process uses a transport; see `communicator.Port`."""

    def __init__(self, meeting: Meeting, local: int) -> None:
        self._meeting = meeting
        self._local = local

    def submit(self, call: Call) -> Pending:
        return self._meeting.submit(self._local, call)

    def send(self, message: Message) -> Pending:
        return self._meeting.deliver(self._local, self._meeting.transport.send(message))

    def receive(self, message: Message) -> Pending:
        return self._meeting.deliver(self._local, self._meeting.transport.receive(message))


class _Ticket(Pending):
    """One rank's place in a slot."""

    __slots__ = ("_baton", "_local", "_slot")

    def __init__(self, slot: Slot, baton: Baton, local: int) -> None:
        self._slot = slot
        self._baton = baton
        self._local = local

    def poll(self) -> bool:
        if not self._slot.ready():
            self._baton.step_aside(self._local)
        if not self._slot.ready():
            return False
        self._slot.outcome()
        return True

    def wait(self) -> None:
        self._baton.wait(self._local, self._slot)

    @property
    def carried(self) -> tuple[float, float] | None:
        return None if self._slot.pending is None else self._slot.pending.carried
