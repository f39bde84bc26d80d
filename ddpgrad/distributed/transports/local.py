"""The transport for ranks that all live in this process: nothing has to travel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.environment import Launch
from ..protocol import guard
from .base import COMPLETED, Pending, Transport
from .calls import Allocate, Call
from .mail import Delivery, Letters, Message


class LocalTransport(Transport):
    """The world is one process; collectives complete as soon as its ranks have called."""

    name = "virtual"
    _number = 0

    def __init__(self, launch: Launch, timeout: float | None = None) -> None:
        super().__init__(launch, timeout)
        self._letters = Letters(launch.world_rank)

    def close(self) -> None:
        self._letters.warn_of_lost()

    def release(self) -> bool:
        self.close()
        return True

    def send(self, message: Message) -> Delivery:
        self.refuse_after_failure()
        return self._letters.send(message)

    def receive(self, message: Message) -> Delivery:
        self.refuse_after_failure()
        return self._letters.receive(message)

    def post(self, calls: Sequence[Call]) -> Pending:
        self.refuse_after_failure()
        self._number += 1
        first = calls[0]
        if any(call.signature.digest != first.signature.digest for call in calls):
            records = {
                self.launch.world_rank(rank): (call.signature.digest, call.signature.fields)
                for rank, call in enumerate(calls)
            }
            raise self.failed(guard.mismatch(records, self._number))
        for call in calls:
            if isinstance(call, Allocate):
                call.result = np.zeros(call.array.shape, call.array.dtype)
        first.complete(calls, self.ranks, [call.array for call in calls])
        return COMPLETED
