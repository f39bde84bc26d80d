"""How processes take turns to make groups over MPI.

MPI cannot say whom a call that makes a communicator waits for, and does not end by itself where
somebody never comes. With Open MPI it may not end either where two threads of a process are in such
calls at once, as ranks that share a process can be. So all processes of a group meet by messages
before its first such call; then each is in the calls of one group at a time. They get their turns
in ascending order: so no two processes hold what the other waits for.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ....core.environment import Launch
from ...protocol import guard
from ..base import Patience
from .library import library, own_world
from .roll_call import Lost

_turn = threading.Lock()  # whose holder makes a group


@contextmanager
def turn(launch: Launch, timeout: float) -> Iterator[None]:
    """Around what the processes of the group `launch` call together to make it.

    Raises StallError if some have not come `timeout` seconds later, RankFailedError if one has ended.
    """
    with _Messages(launch, timeout) as messages:
        me, everyone = launch.proc, range(launch.procs)
        others = [proc for proc in everyone if proc != me]
        messages.send(others)
        messages.receive(others)
        if me > 0:
            messages.receive([me - 1])
        with _turn:
            if me < everyone[-1]:
                messages.send([me + 1])
                messages.receive([everyone[-1]])
            else:
                messages.send(others)
            yield


class _Messages:
    """Words without content between the processes of a group, by their numbers in it."""

    def __init__(self, launch: Launch, timeout: float) -> None:
        assert launch.group is not None
        self._launch = launch
        self._group = launch.group
        self._timeout = timeout
        self._mpi = library()
        self._comm = own_world()
        # Two groups of the same processes may meet at once, for different ranks of theirs.
        self._tag = zlib.crc32(repr(launch.group).encode()) % (self._comm.Get_attr(self._mpi.TAG_UB) + 1)
        self._word = np.zeros(1, np.uint8)
        self._sent: list[Any] = []

    def __enter__(self) -> _Messages:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._poll(self._sent, lambda done: None)

    def send(self, procs: Sequence[int]) -> None:
        """Begin to send a word to each of `procs`."""
        self._sent += [self._comm.Isend(self._word, self._group[proc][0], self._tag) for proc in procs]

    def receive(self, procs: Sequence[int]) -> None:
        """Return when each of `procs` has sent a word."""
        words = np.empty((len(procs), 1), np.uint8)
        requests = [
            self._comm.Irecv(word, self._group[proc][0], self._tag)
            for proc, word in zip(procs, words, strict=True)
        ]
        deadline = time.monotonic() + self._timeout

        def look(done: Sequence[bool]) -> None:
            missing = [proc for proc, there in zip(procs, done, strict=True) if not there]
            lost = [proc for proc in missing if self._group[proc][0] in Lost.how]
            if lost:
                raise guard.rank_failed(self._group[lost[0]][1], Lost.how[self._group[lost[0]][0]], {})
            if time.monotonic() > deadline:
                raise guard.not_come(self._launch, missing, self._timeout)

        try:
            self._poll(requests, look)
        except BaseException:
            for request in requests:
                if not request.Test():
                    request.Cancel()
                    request.Wait()
            raise

    def _poll(self, requests: list[Any], look: Callable[[Sequence[bool]], None]) -> None:
        """Return when all of `requests` are complete; until then `look` at which are, now and again."""
        patience, next_look = Patience(), time.monotonic() + 0.02
        while not self._mpi.Request.Testall(requests):
            patience.pause()
            if time.monotonic() >= next_look:
                look([request.Test() for request in requests])
                next_look = time.monotonic() + 0.02
