"""Exchanges between MPI processes, in a way that leaves the core to whoever computes.

MPI waits by spinning. In a thread beside a program that computes, on a host without a spare
core, that would cost half of the program's speed; and a nonblocking exchange moves nothing
unless somebody asks MPI for it. So the thread asks as long as asking moves something, some
kilobytes each time, and then sleeps: at 1 Gbit/s this takes an eighth of a core where spinning
takes two thirds, and no longer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

MESSAGE = 2 << 20
"""Bytes for each process up to which this keeps a network busy; of larger ones, MPI keeps too little on its way."""

_TAG = 5  # beside those of `roll_call`

_ASK = 50
# To be told that there is nothing to do takes MPI a microsecond; to copy a segment, ten.
_MOVED = 5e-6
_SLEEP = 0.0005
# Of what was waited so far: short exchanges over fast networks must not sleep past their end.
_SLEEP_SHARE = 0.125


class Naps:
    """Sleeps that grow with the time waited so far, to half a millisecond."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.monotonic()

    def nap(self) -> None:
        time.sleep(min((time.monotonic() - self._began) * _SLEEP_SHARE, _SLEEP))


class Exchange:
    """The exchanges of the processes of `comm`. gently: another thread of this process computes meanwhile."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.gently = False

    def all_to_all(self, send: Any, receive: Any) -> None:
        """MPI's Alltoallv."""
        self._complete(self._comm.Ialltoallv(send, receive))

    def all_gather(self, parts: Sequence[Any]) -> None:
        """Give this process's part of an array to all others, and get theirs. parts: the array, sizes, starts and type of all.

        By Ialltoallv, which has as many bytes on their way: MPICH's Iallgatherv takes 1.4 times as long where sizes differ.
        """
        data, sizes, starts, kind = parts
        me, count = self._comm.rank, len(sizes)
        others = [proc != me for proc in range(count)]
        # A copy: where both arrays begin at one address, Open MPI's Ialltoallv takes that for an exchange in place.
        mine = data[starts[me] : starts[me] + sizes[me]].copy()
        send = [mine, [sizes[me] * other for other in others], [0] * count, kind]
        received = [size * other for size, other in zip(sizes, others, strict=True)]
        self._complete(self._comm.Ialltoallv(send, [data, received, starts, kind]))

    def send(self, data: Any, dest: int) -> None:
        """MPI's Send."""
        self._complete(self._comm.Isend(data, dest=dest, tag=_TAG))

    def receive(self, data: Any, source: int) -> None:
        """MPI's Recv."""
        self._complete(self._comm.Irecv(data, source=source, tag=_TAG))

    def broadcast(self, data: Any, root: int) -> None:
        """MPI's Bcast."""
        self._complete(self._comm.Ibcast(data, root=root))

    def _complete(self, request: Any) -> None:
        # Nonblocking also where nobody computes: MPI's blocking forms do not meet the others' nonblocking ones,
        # and of one collective some processes may wait in a thread and some not.
        if self.gently:
            _finish(request)
        else:
            request.Wait()


def _finish(request: Any) -> None:
    naps = Naps()
    while True:
        asked = time.monotonic()
        for _ in range(_ASK):
            if request.Test():
                return
            before, asked = asked, time.monotonic()
            if asked - before < _MOVED:
                break
        naps.nap()
