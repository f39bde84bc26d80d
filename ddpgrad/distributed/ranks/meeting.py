"""Where the ranks of a process meet before each collective: the last to arrive posts it to the transport for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..transports.base import Pending, Transport
from ..transports.calls import Call
from ..transports.mail import Delivery, Message
from .baton import Baton, Slot


class Meeting:
    """Brings the calls of this process's ranks together and hands them to a transport.

    ranks: who takes part, by index within the process.
    """

    def __init__(self, transport: Transport, baton: Baton, ranks: Sequence[int]) -> None:
        self.transport = transport
        self._baton = baton
        self._ranks = ranks
        self._entered = dict.fromkeys(ranks, 0)
        self._open: dict[int, Slot] = {}
        self._all = len(ranks) == len(baton.helpers)
        self._book = threading.Lock()
        self._lock = threading.Lock()  # whose holder moves the transport

    def submit(self, local: int, call: Call) -> Pending:
        """Enter the next collective of rank `local`."""
        self.transport.refuse_after_failure()
        with self._book:
            number = self._entered[local]
            self._entered[local] += 1
            slot = self._open.get(number)
            if slot is None:
                slot = self._open[number] = Slot(self._lock, self.transport.timeout, self._ranks)
            slot.calls[local] = call
            calls = [made for made in slot.calls.values() if made is not None]
            complete = len(calls) == len(self._ranks)
            if complete:
                del self._open[number]
        if complete:
            try:
                slot.pending = self._post(local, calls)
            except Exception as error:
                slot.error = error
        return _Ticket(slot, self._baton, local)

    def _post(self, local: int, calls: Sequence[Call]) -> Pending:
        def post() -> Pending:
            with self._lock:
                return self.transport.post(calls)

        return post() if self._all else self._baton.outside(local, post)

    def deliver(self, local: int, begin: Callable[[Message], Delivery], message: Message) -> Pending:
        """One end of a message, for rank `local` to wait for."""
        slot = Slot(self._lock, self.transport.timeout)
        with self._lock:
            slot.pending = begin(message)
        return _Ticket(slot, self._baton, local)


class Seat:
    """How one of several ranks of a process uses a transport; see `communicator.Port`."""

    def __init__(self, meeting: Meeting, local: int) -> None:
        self._meeting = meeting
        self.transport = meeting.transport
        self._local = local

    def submit(self, call: Call) -> Pending:
        return self._meeting.submit(self._local, call)

    def send(self, message: Message) -> Pending:
        return self._meeting.deliver(self._local, self._meeting.transport.send, message)

    def receive(self, message: Message) -> Pending:
        return self._meeting.deliver(self._local, self._meeting.transport.receive, message)


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
