"""Several ranks in one process: they are threads that pass one baton, and meet before each collective (`meeting.py`).

Only the holder of the baton runs Python; the baton changes hands only inside collectives,
always to the next rank that can go on. So a run is deterministic, and a debugger that stops
one rank stops nothing else but the waiting. What may wait for other processes while some of these ranks take no part
in it happens without the baton: the others may be waited for there.

A *helper* is a thread that a rank has started. Helpers compute when they like, as they do in a process of
their own, and their collectives need no baton: one looks at its own from time to time until it is complete.
While the rank's own thread waits for its helpers (`blocked`), a helper in a collective passes the baton on.
"""

from __future__ import annotations

import enum
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from ..protocol import guard, progress
from ..transports.base import Patience, Pending, again
from ..transports.calls import Call
from ..transports.mail import Delivery

# A helper looks at its collective in such intervals, from the first to the second.
_LOOK_S = 0.0002, 0.005
# A rank's own thread that has held the baton for so long, while a helper is in a collective, may wait for that helper
# in a way that nobody sees (a lock, say).
_UNSEEN_S = 0.05
# A thread that waited for another of its rank goes on within this time, when that one has ended, or has told it to.
_WAKES_S = 1.0
# A thread that has waited for another of its rank goes on without the baton after this time: it may hold a lock that
# the holder of the baton wants.
_ASKS_S = 1.0


T = TypeVar("T")


class Unwind(BaseException):
    """Ends a rank's thread because another rank failed. Never leaves `host.py`."""


class Slot:
    """A collective in which the ranks of this process meet, or a message; ranks wait for it.

    lock    whose holder moves the transport
    limit   seconds that a rank waits at most for those of its process
    """

    __slots__ = ("calls", "error", "limit", "lock", "pending")

    def __init__(self, lock: threading.Lock, limit: float, ranks: Sequence[int] = ()) -> None:
        # By the rank's index within the process, in the transport's order.
        self.calls: dict[int, Call | None] = dict.fromkeys(ranks)
        self.pending: Pending | None = None
        self.error: Exception | None = None
        self.lock = lock
        self.limit = limit

    def ready(self) -> bool:
        """True when complete or failed; lets the transport advance, unless another thread does."""
        if self.error is not None:
            return True
        if self.pending is None or not self.lock.acquire(blocking=not self.pending.external):
            return False
        try:
            return self.pending.poll()
        except Exception as error:
            self.error = error
            return True
        finally:
            self.lock.release()

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


class Outside(Pending):
    """What a rank does without the baton, until it is `done`."""

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


class State(enum.Enum):
    """What the own thread of a rank does, unless it waits for a `Slot`."""

    ASKS = enum.auto()  # wants the baton
    RUNS = enum.auto()
    BLOCKED = enum.auto()  # waits for another thread of its rank
    OUTSIDE = enum.auto()  # may wait for other processes
    ENDED = enum.auto()


class Baton:
    """Decides which of the ranks hosted here runs. Ranks are counted from 0 within the process.

    holder     the rank that has the baton; None while the threads of all wait for their helpers
    helpers    the threads that each rank has started and that may call collectives, while they live
    failures   the ranks that failed, with their errors, the first in front
    """

    def __init__(self, ranks: Sequence[int], per_rank: PerRank | None = None) -> None:
        self.ranks = ranks
        self._per_rank = per_rank
        self._gates = [threading.Lock() for _ in ranks]
        for gate in self._gates:
            gate.acquire()
        self.states: list[State | Slot] = [State.ASKS for _ in ranks]
        self.idents = [0 for _ in ranks]
        # For who gives the baton away in place of its holder, and who may lose it so.
        self._lock = threading.Lock()
        # The helpers that wait, by thread: for which rank, and for what.
        self._helping: dict[int, tuple[int, Slot]] = {}
        self._moved_at = self.entered_at = (
            0.0  # when a helper last began to wait or ended; the holder got the baton
        )
        self.helpers: list[set[threading.Thread]] = [set() for _ in ranks]
        self.failures: list[tuple[int, BaseException]] = []
        self.stopping = False
        self.holder: int | None = 0

    def start(self) -> None:
        """Give the baton to the first rank."""
        self._gates[0].release()

    def receive(self, local: int) -> None:
        """Block until rank `local`, whose own thread calls, holds the baton for the first time."""
        self.idents[local] = threading.get_ident()
        self._gates[local].acquire()
        self._enter(local, State.RUNS)

    def wait(self, local: int, slot: Slot) -> None:
        """Let others run until `slot` is ready; raises what went wrong with it."""
        self._stop_if_asked()
        if threading.get_ident() == self.idents[local]:
            self._wait(local, slot)
        else:
            self._wait_beside(local, slot)
        slot.outcome()

    def outside(self, local: int, act: Callable[[], T]) -> T:
        """Do what may wait for other processes, while others run.

        An MPI library that has one thread at a time lets no other run.
        """
        self._stop_if_asked()
        if _mpi_has_one_thread():
            return act()
        me, slot = threading.get_ident(), Slot(threading.Lock(), float("inf"))
        doing = slot.pending = Outside()
        own = me == self.idents[local]
        if own:
            self._take(local, State.RUNS)
            if self._per_rank is not None:
                self._per_rank.leave()
            with self._lock:
                self.states[local] = State.OUTSIDE
                self._pass_on(local)
        else:
            self._helping[me] = local, slot
            self._give_away(local)
        try:
            return act()
        finally:
            doing.done = True
            if own:
                self._take(local, State.RUNS)
            else:
                del self._helping[me]

    def step_aside(self, local: int) -> None:
        """Let another rank run a turn, if one can: a loop of polls must not keep the baton."""
        self._stop_if_asked()
        if threading.get_ident() != self.idents[local]:
            self._give_away(local)
            return
        self._take(local, State.ASKS)
        other = self._next_runnable(local)
        if other is not None:
            self._hand_over(local, other)
        self.states[local] = State.RUNS

    @contextmanager
    def blocked(self, local: int) -> Iterator[None]:
        """Around a wait for other threads of rank `local`: its helpers may let other ranks run meanwhile."""
        if threading.get_ident() != self.idents[local] or self.states[local] is not State.RUNS:
            yield
            return
        with self._lock:
            self.states[local] = State.BLOCKED
        if any(rank == local for rank, _ in [*self._helping.values()]):
            self._give_away(local)
        try:
            yield
        finally:
            self._take(local, State.RUNS, _ASKS_S)
            self._stop_if_asked()

    def retire(self, local: int) -> None:
        """Rank `local` has ended; the baton goes on."""
        with self._lock:
            self.states[local] = State.ENDED
            self._pass_on(local)

    def helper_ended(self, local: int, thread: threading.Thread) -> None:
        """`thread`, which rank `local` has started, ends."""
        self._moved_at = time.monotonic()
        self.helpers[local].discard(thread)

    def fail(self, local: int, error: BaseException) -> None:
        """Rank `local` has failed: all others end at their next collective."""
        self.failures.append((self.ranks[local], error))
        self.stopping = True

    def any_blocked(self) -> bool:
        """Whether a rank waits for threads of its own, or for other processes, which may never end."""
        return State.BLOCKED in self.states or State.OUTSIDE in self.states

    def _wait(self, local: int, slot: Slot) -> None:
        """`wait` in the rank's own thread."""
        patience, until = Patience(), None
        self._take(local, slot)
        try:
            while not slot.ready():
                other = self._next_runnable(local)
                if other is not None:
                    self._hand_over(local, other)
                    patience, until = Patience(), None
                    continue
                until = self._look(slot, until)
                patience.pause()
                self._stop_if_asked()
        finally:
            self.states[local] = State.RUNS

    def _wait_beside(self, local: int, slot: Slot) -> None:
        """`wait` in a helper."""
        me = threading.get_ident()
        until, pause = None, _LOOK_S[0]
        self._moved_at = time.monotonic()
        unseen_at = self._moved_at + _UNSEEN_S
        self._helping[me] = local, slot
        try:
            while not slot.ready():
                self._give_away(local, even_if_it_runs=time.monotonic() > unseen_at)
                until = self._look(slot, until)
                time.sleep(pause)
                pause = min(2 * pause, _LOOK_S[1])
                self._stop_if_asked()
        finally:
            del self._helping[me]

    def _look(self, slot: Slot, until: float | None) -> float | None:
        """Raise if `slot` cannot become ready, or has not until then; returns until when it may."""
        waited = [state for state in self.states if isinstance(state, Slot)]
        helping = [slot for _, slot in [*self._helping.values()]]
        if gone := [i for i, call in slot.calls.items() if call is None and self._is_gone(i)]:
            raise guard.rank_failed([self.ranks[i] for i in gone], guard.ENDED_WELL, self.waiting())
        if any(one.from_outside() for one in (*waited, *helping)):
            return None
        busy = (
            sum(map(len, self.helpers)) > len(helping)
            or State.RUNS in self.states
            or State.ASKS in self.states
            or State.OUTSIDE in self.states
            or (self.any_blocked() and time.monotonic() < self._moved_at + _WAKES_S)
            or any(one.ready() for one in (*waited, *helping))
        )
        if not busy:
            raise guard.deadlock(self.waiting())
        until = until or time.monotonic() + slot.limit
        if time.monotonic() > until:
            raise guard.deadlock(self.waiting(), slot.limit)
        return until

    def _is_gone(self, local: int) -> bool:
        return self.states[local] is State.ENDED and not self.helpers[local]

    def waiting(self) -> dict[int, Sequence[str]]:
        """What each rank that waits, or one of its helpers, waits for, in words."""
        waited = dict([*self._helping.values()])
        waited |= {local: state for local, state in enumerate(self.states) if isinstance(state, Slot)}
        return {self.ranks[local]: slot.fields(local) for local, slot in waited.items()}

    def _stop_if_asked(self) -> None:
        if self.stopping:
            raise Unwind

    def _next_runnable(self, local: int) -> int | None:
        count = len(self.ranks)
        for step in range(1, count):
            other = (local + step) % count
            state = self.states[other]
            if state is State.ASKS or (isinstance(state, Slot) and state.ready()):
                return other
        return None

    def _take(self, local: int, state: State | Slot, limit: float = -1) -> None:
        """Hold the baton, which the rank may have lost while one of its helpers waited, and do what `state` says.

        limit: seconds after which the rank does so without the baton; -1: none.
        """
        with self._lock:
            if self.holder is None:
                self.holder = local
                self._gates[local].release()
            elif self.holder == local:
                self.states[local] = state
                return
            self.states[local] = State.ASKS
        if not self._gates[local].acquire(timeout=limit):
            with self._lock:
                if not self._gates[local].acquire(blocking=False):
                    self.states[local] = state
                    return
        self._enter(local, state)

    def _enter(self, local: int, state: State | Slot) -> None:
        """Rank `local` has been given the baton."""
        self.states[local], self.entered_at = state, time.monotonic()
        progress.turn = self.ranks[local]
        if self._per_rank is not None:
            self._per_rank.enter(local)
        self._stop_if_asked()

    def _hand_over(self, local: int, other: int) -> None:
        if self._per_rank is not None:
            self._per_rank.leave()
        with self._lock:
            if self.states[other] is State.RUNS:
                return  # it has gone on without the baton
            self.holder = other
            self._gates[other].release()
        self._gates[local].acquire()
        self._enter(local, self.states[local])

    def _give_away(self, local: int, even_if_it_runs: bool = False) -> None:
        """Pass the baton on if rank `local` holds it, and its own thread waits for a helper."""
        with self._lock:
            state = self.states[local]
            if self.holder == local and (state is State.BLOCKED or (state is State.RUNS and even_if_it_runs)):
                if self._per_rank is not None:
                    self._per_rank.leave()
                self._pass_on(local)

    def _pass_on(self, local: int) -> None:
        """Give the baton of `local`, which will not ask for it now, to another rank, or leave it to who asks first."""
        if self.holder != local:
            return
        other = None if self.stopping else self._next_runnable(local)
        if other is None:
            # A rank that cannot go on finds out why by itself, in its loop.
            waits = (
                i for i, state in enumerate(self.states) if state is State.ASKS or isinstance(state, Slot)
            )
            other = next(waits, None)
        self.holder = other
        if other is not None:
            self._gates[other].release()
