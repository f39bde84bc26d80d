"""Messages from one rank to another: sends and receives are matched by rank and tag.

A message has a tag; of those with one tag from one rank, the first sent is the first
received. Short messages are copied when they are sent, so that two ranks may both send
first; the sender of a longer one waits for its receiver.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from ...core.errors import DistributedError, MismatchError
from ..protocol import guard
from .base import Patience, Pending

EAGER = 1 << 16
"""Bytes up to which a message is copied when it is sent."""

ANY = -1
"""As the source or tag of a receive: whichever comes."""


class Message:
    """One end of a message: the array that a rank sends, or the place where it receives.

    array    one-dimensional and contiguous; of a message from another process, its bytes
    source   the sending rank; a receive from ANY has it set when the message is there
    fields   the call of the rank, in words (`guard.Signature.fields`)
    kind     name of the dtype and number of elements, which must be the same at both ends
    """

    __slots__ = ("array", "fields", "kind", "source", "tag", "target")

    def __init__(
        self,
        array: np.ndarray,
        source: int,
        target: int,
        tag: int,
        fields: Sequence[str],
        kind: tuple[str, int] | None = None,
    ) -> None:
        self.array = array
        self.source = source
        self.target = target
        self.tag = tag
        self.fields = fields
        self.kind = kind or (array.dtype.name, array.size)


class Delivery(Pending):
    """The state of one end of a message. `owner`: the rank whose end it is.

    began: since when it is waited for, on the monotonic clock; 0.0 before.
    progress: moves messages between processes on, and raises when this one cannot come any
    more; None where only a rank of this process can bring it.
    """

    __slots__ = ("began", "done", "error", "message", "owner", "progress")

    def __init__(
        self, message: Message, owner: int, progress: Callable[[Delivery], None] | None = None
    ) -> None:
        self.message = message
        self.owner = owner
        self.began = 0.0
        self.done = False
        self.error: DistributedError | None = None
        self.progress = progress

    @property
    def external(self) -> bool:
        return self.progress is not None

    def poll(self) -> bool:
        if not self.done and self.error is None and self.progress is not None:
            self.progress(self)
        if self.error is not None:
            raise self.error
        return self.done

    def wait(self) -> None:
        patience = Patience()
        while not self.poll():
            if self.progress is None:
                raise guard.deadlock({self.owner: self.message.fields})
            patience.pause()


class Letters:
    """Brings sends and receives of this process's ranks together. `name`: what messages call a rank."""

    def __init__(self, name: Callable[[int], int]) -> None:
        self._name = name
        self._sent: dict[int, list[Delivery]] = {}
        self._wanted: dict[int, list[Delivery]] = {}

    def send(self, message: Message, owned: bool = False) -> Delivery:
        """Hand `message` to a receive that waits for it, or keep it until one comes.

        owned: nobody else uses the array, and nobody waits.
        """
        sending = Delivery(message, message.source)
        wanted = self._wanted.setdefault(message.target, [])
        for receiving in wanted:
            if _answers(message, receiving.message):
                wanted.remove(receiving)
                self._deliver(sending, receiving)
                return sending
        if owned or message.array.nbytes <= EAGER:
            if not owned:
                message.array = message.array.copy()
            sending.done = True
        self._sent.setdefault(message.target, []).append(sending)
        return sending

    def receive(self, message: Message, progress: Callable[[Delivery], None] | None = None) -> Delivery:
        """Take the first message that answers, or wait for it."""
        receiving = Delivery(message, message.target, progress)
        sent = self._sent.setdefault(message.target, [])
        for sending in sent:
            if _answers(sending.message, message):
                sent.remove(sending)
                self._deliver(sending, receiving)
                return receiving
        self._wanted.setdefault(message.target, []).append(receiving)
        return receiving

    def warn_of_lost(self) -> None:
        """At the end of this process's ranks: say which messages nobody has received."""
        lost = [sending.message for sent in self._sent.values() for sending in sent]
        self._sent.clear()
        if lost:
            warnings.warn(
                guard.lost([(self._name(m.target), self._name(m.source), m.fields) for m in lost]),
                RuntimeWarning,
                2,
            )

    def _deliver(self, sending: Delivery, receiving: Delivery) -> None:
        sent, into = sending.message, receiving.message
        into.source = sent.source
        if sent.kind != into.kind:
            error = self._unlike(sent, into)
            receiving.error = error
            if not sending.done:
                sending.error = error
            return
        into.array.view(np.uint8)[...] = sent.array.view(np.uint8)
        sending.done = receiving.done = True

    def _unlike(self, sent: Message, into: Message) -> MismatchError:
        source, target = self._name(sent.source), self._name(into.target)
        return MismatchError(
            f"rank {target} receives another dtype or size than rank {source} sent:\n"
            f"  rank {target}: {guard.describe(into.fields)}\n"
            f"  rank {source}: {guard.describe(sent.fields)}\n"
            "Nothing was written. Give recv() a tensor like the one that is sent."
        )


def _answers(sent: Message, receive: Message) -> bool:
    return receive.source in (ANY, sent.source) and receive.tag in (ANY, sent.tag)
