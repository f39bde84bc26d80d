"""Ports join one rank's communicator to a transport. A rank posts its calls there, and gets works to wait for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NoReturn, Protocol

import numpy as np

from ...core.errors import DistributedError
from ...core.taping import untaped
from ..protocol import guard
from ..protocol.guard import Signature
from ..transports.base import COMPLETED, Pending, Transport, again
from ..transports.calls import Call
from ..transports.mail import ANY, Message
from .arrays import check_array, in_order, write_back


class ArrayWork:
    """A collective under way. Its arrays must not be touched before `wait` returns.

    carried: when it is complete, from when to when another thread worked on it (see `Pending`), if one did.
    """

    __slots__ = ("_finish", "_pending", "carried")

    def __init__(self, pending: Pending, finish: Callable[[], None] | None = None) -> None:
        self._pending = pending
        self._finish = finish
        self.carried: tuple[float, float] | None = None

    def wait(self) -> None:
        """Return when the collective is complete; raises `DistributedError` if it cannot be."""
        if self._pending is COMPLETED and self._finish is None:
            return
        self._pending.wait()
        self._settle()

    def poll(self) -> bool:
        """Advance the collective without waiting; True when complete."""
        if not self._pending.poll():
            return False
        self._settle()
        return True

    def is_completed(self) -> bool:
        """PyTorch's name for `poll`."""
        return self.poll()

    def _settle(self) -> None:
        self.carried = self._pending.carried or self.carried
        self._pending = COMPLETED
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()


DONE = ArrayWork(COMPLETED)
"""A collective that was carried out at once."""


class Port(Protocol):
    """How one rank uses a transport: the first argument of each is that rank's part."""

    @property
    def transport(self) -> Transport: ...

    def submit(self, call: Call) -> Pending: ...

    def send(self, message: Message) -> Pending: ...

    def receive(self, message: Message) -> Pending: ...


class Alone:
    """The port of a rank that has a process, and so the transport, to itself."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._post = transport.post
        self.send, self.receive = transport.send, transport.receive
        self.now = transport.now

    def submit(self, call: Call) -> Pending:
        return self._post((call,))


def never(signature: Signature, array: np.ndarray, result: np.ndarray) -> bool:
    """The `now` of ports that have none."""
    return False


def ignore(what: Any) -> None:
    """The `note` where nobody wants to know."""


def refuse(what: Any) -> NoReturn:
    """The `note` of a communicator that is closed."""
    raise RuntimeError(f"this communicator is closed (destroy_process_group was called), for {what}")


class Turn:
    """Whose turn it is to call a collective of one rank's group: one thread's at a time.

    Collectives of different ranks belong together by their order, which two threads at once do not have.
    """

    __slots__ = ("_lock", "free", "take")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.take: Callable[[bool], bool] = self._lock.acquire  # ask with False: it is never waited for
        self.free = self._lock.release

    def refuse(self, port: Port, rank: int, signature: Signature) -> NoReturn:
        """Raise, and let nothing more be carried, since another thread is within a collective."""
        other = _within(self)
        error = DistributedError(
            f"rank {rank} calls collectives of one group from two threads at once:\n"
            f"  {threading.current_thread().name!r}: {signature}\n  {other}\n"
            "Collectives of the ranks belong together by their order, and these have none: sums of what does not belong "
            "together would be the result. Let one thread call them all, or make a group for each thread (new_group)"
        )
        transport = port.transport
        transport.fail(
            transport.ranks.start, f"raised DistributedError: {error}".splitlines()[0], secondary=False
        )
        raise again(transport.failed(error))


def _within(turn: Turn) -> str:
    """The thread that has the turn, and what it calls, as far as that can be seen."""
    names = {
        thread.ident: thread.name
        for thread in threading.enumerate()
        if thread is not threading.current_thread()
    }
    for ident, frame in sys._current_frames().items():
        while frame is not None and ident in names:
            found = frame.f_locals
            if found.get("turn") is turn and isinstance(found.get("signature"), Signature):
                return f"{names[ident]!r}: {found['signature']}"
            frame = frame.f_back
    return "another thread, whose call has just ended"


COLLECTIVE = "it calls a collective of its own"


class Mail:
    """The part of a `Communicator` that goes from one rank to another."""

    __slots__ = ()

    rank: int
    size: int
    _note: Callable[[Any], None]
    _port: Port

    def send(self, array: np.ndarray, dst: int, tag: int = 0) -> ArrayWork:
        """Send `array` to rank `dst`; its `recv` must have as many elements of the same dtype.

        The work is complete when `array` may be changed.
        """
        self._check_rank("send: dst", dst)
        if dst == self.rank:
            raise ValueError(f"send: rank {dst} cannot send to itself")
        check_array("send", array)
        fields = guard.signature(f"send(dst={dst}, tag={tag})", array.dtype, array.shape).fields
        flat = in_order(array)
        return ArrayWork(self._mail("send", Message(flat, self.rank, dst, tag, fields)))

    def recv(self, array: np.ndarray, src: int | None = None, tag: int = 0) -> tuple[ArrayWork, Message]:
        """Receive into `array` from rank `src`, or from any; the message's `source` says from whom."""
        if src is not None:
            self._check_rank("recv: src", src)
            if src == self.rank:
                raise ValueError(f"recv: rank {src} cannot receive from itself")
        check_array("recv", array, writes=True)
        name = f"recv(src={'any' if src is None else src}, tag={tag})"
        fields = guard.signature(name, array.dtype, array.shape).fields
        flat = array.reshape(-1) if array.flags.c_contiguous else np.empty(array.size, array.dtype)
        message = Message(flat, ANY if src is None else src, self.rank, tag, fields)
        finish = None if array.flags.c_contiguous else partial(write_back, array, flat)
        return ArrayWork(self._mail("receive", message), finish), message

    def _mail(self, end: Literal["send", "receive"], message: Message) -> Pending:
        untaped(COLLECTIVE)
        self._note(guard.describe(message.fields))
        return getattr(self._port, end)(message)

    def _check_rank(self, what: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise ValueError(f"{what} must be a rank from 0 to {self.size - 1}, got {rank}")
