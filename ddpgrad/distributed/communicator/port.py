"""Ports join one rank's communicator to a transport. A rank posts its calls there, and gets works to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from ..protocol.guard import Signature
from ..transports.base import COMPLETED, Pending, Transport
from ..transports.calls import Call
from ..transports.mail import Message


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

    def submit(self, call: Call) -> Pending: ...

    def send(self, message: Message) -> Pending: ...

    def receive(self, message: Message) -> Pending: ...


class Alone:
    """The port of a rank that has a process, and so the transport, to itself."""

    def __init__(self, transport: Transport) -> None:
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
