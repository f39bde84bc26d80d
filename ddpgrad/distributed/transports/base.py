"""A transport carries the collectives of all ranks of this process.

It receives one `Call` from each rank that the process hosts, in rank order, and returns one
`Pending` for all of them. Every rank of the world posts the same collectives in the same order;
they complete in that order.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from ...core.environment import Launch, debugger
from ...core.environment import timeout as environment_timeout
from ...core.errors import DistributedError
from ..protocol.guard import Signature
from .calls import Call

if TYPE_CHECKING:
    from .mail import Delivery, Message

_yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


class Pending(ABC):
    """A posted collective, or one end of a message.

    external: something outside this process can complete it.
    carried: from when to when another thread worked on it (seconds of the monotonic clock), if one did.
    """

    __slots__ = ()

    external = True

    @property
    def carried(self) -> tuple[float, float] | None:
        return None

    @abstractmethod
    def poll(self) -> bool:
        """Do what can be done without waiting; True when complete. Raises what went wrong."""

    @abstractmethod
    def wait(self) -> None:
        """Return when complete. Raises what went wrong."""


class _Completed(Pending):
    __slots__ = ()

    def poll(self) -> bool:
        return True

    def wait(self) -> None:
        return


COMPLETED: Pending = _Completed()


def limit(timeout: float | None) -> float:
    """Seconds that this process waits for others: `timeout`, or DDPGRAD_TIMEOUT; for ever under a debugger."""
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be more than 0 seconds, got {timeout:g}")
    if debugger():
        return float("inf")
    return environment_timeout() if timeout is None else timeout


def forked(launch: Launch) -> DistributedError:
    """What a fork of a process that hosts ranks is told: what it posted would be taken for theirs."""
    return DistributedError(
        f"process {os.getpid()} is a fork of one that hosts ranks {[*map(launch.world_rank, launch.ranks)]}: only that one "
        "takes part in collectives and messages. Communicate there, or start processes by multiprocessing's 'spawn'"
    )


def _refuse_in_fork() -> None:
    for transport in _joined:
        if vars(transport) and transport.failure is None:  # it has not been released
            transport.failure = forked(
                transport.launch
            )  # not by `failed`, which tells other processes of this one's end


_joined: WeakSet[Transport] = WeakSet()
"""The transports of this process to others, or between ranks that it hosts."""
os.register_at_fork(after_in_child=_refuse_in_fork)


_movers: WeakSet[Transport] = WeakSet()


def moves(transport: Transport) -> None:
    """`transport` has things under way that only this process's own calls move on, until `rests`."""
    _movers.add(transport)


def rests(transport: Transport) -> None:
    """The end of `moves`."""
    _movers.discard(transport)


def advance_others(waiting: Transport) -> None:
    """Let what is under way on all other transports of this process go on, since other ranks may wait for that first."""
    if len(_movers) > 1:
        for transport in list(_movers):
            if transport is not waiting:
                transport.advance()


class Transport(ABC):
    """Carries the collectives of one process's ranks; see the module's text.

    After the first `DistributedError` between ranks nothing more is carried: `post` raises
    that error again, since ranks may no longer be at the same place of the program.
    """

    name = ""

    def __init__(self, launch: Launch, timeout: float | None = None) -> None:
        self.launch = launch
        self.ranks = launch.ranks
        self.timeout = limit(timeout)
        self.failure: DistributedError | None = None
        if launch.world_size > 1:
            _joined.add(self)

    @abstractmethod
    def post(self, calls: Sequence[Call]) -> Pending:
        """Begin a collective with the calls of the ranks in `launch.ranks`, in that order."""

    def now(self, signature: Signature, array: np.ndarray, result: np.ndarray) -> bool:
        """Carry out a collective of this process's only rank, if there is a shorter way than `post`.

        array, result: as a `Call` of this signature has them, which says the rest. False: there is no such way, and
        nothing has happened.
        """
        return False

    @abstractmethod
    def send(self, message: Message) -> Delivery:
        """Begin to send `message` from a rank of this process."""

    @abstractmethod
    def receive(self, message: Message) -> Delivery:
        """Begin to receive a message for a rank of this process."""

    def fail(self, rank: int, reason: str, secondary: bool) -> None:  # noqa: B027
        """Tell the other processes that hosted `rank` cannot go on.

        `reason` is a phrase such as "raised ValueError: …"; a `secondary` failure is the consequence of another rank's.
        """

    def advance(self) -> None:  # noqa: B027
        """Do what can be done without waiting for what is under way. What goes wrong is said to whoever waits for that."""

    def close(self) -> None:  # noqa: B027
        """Tell the other processes that no more calls come from here. May be called twice."""

    def release(self) -> bool:
        """The ranks of this process have left the group: give back what it took, without waiting for the others.

        False: something is kept that others may use, until the next call or `close`.
        """
        return False

    def failed(self, error: DistributedError) -> DistributedError:
        """Remember the first failure; returns it."""
        if self.failure is None:
            self.failure = error
        return self.failure

    def refuse_after_failure(self) -> None:
        """Raise the first failure again, if there was one."""
        if self.failure is not None:
            raise again(self.failure)


def ended(what: str) -> DistributedError:
    """The error for a collective of a process whose ranks have left `what`."""
    return DistributedError(
        f"the ranks of this process have ended, and with them their use of {what}: functions of atexit, and threads that go on, "
        "come too late for collectives. Call them at the end of the program"
    )


def again(error: BaseException) -> BaseException:
    """A fresh exception with the same text: several ranks raise it, each with its own traceback."""
    try:
        copy = type(error)(*error.args)
        copy.__dict__.update(error.__dict__)
        return copy
    except TypeError:
        return RuntimeError(str(error))


class Patience:
    """How to wait for other processes: spin, then yield the core, then sleep.

    Spinning answers within a microsecond; yielding lets another rank on this core work;
    sleeping, after a twentieth of a second, leaves the core to whoever computes.

    Where another program has the core that was yielded, a nap is better: the system gives a core sooner to who has
    slept than to who has yielded.
    """

    __slots__ = ("_began", "_crowded", "_own_core", "_spins")

    SLEEP_AFTER = 0.05
    SLEEP = 0.0005
    NAP = 0.00005
    CROWDED = 0.0003
    """Seconds that yielding takes where another program was let in."""

    def __init__(self, spins: int = 100, own_core: bool = False) -> None:
        """`spins`: how often to try again at once; each try may cost a microsecond or two. own_core: other ranks have others."""
        self._spins = spins
        self._own_core = own_core
        self._crowded = False
        self._began = 0.0

    def pause(self) -> None:
        """Wait a little; a little longer each time."""
        if self._spins > 0:
            self._spins -= 1
            return
        now = time.monotonic()
        if self._began == 0.0:
            self._began = now
        if now - self._began >= self.SLEEP_AFTER:
            time.sleep(self.SLEEP)
        elif self._crowded:
            time.sleep(self.NAP)
        else:
            _yield_core()
            self._crowded = self._own_core and time.monotonic() - now > self.CROWDED
