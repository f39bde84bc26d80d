"""The roll call before each collective: MPI processes learn what all of them are about to do.

So nobody waits inside MPI, which cannot name whom it waits for, before all are known to come. Words go round in
ceil(log2 N) rounds: in round k each process tells the one 2^k after it the least and the greatest digest that it has heard of,
and hears the same of the one 2^k before it; after the last round all know those of all. A process of 10,000 so sends
14 words and not 9,999. Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization" (1988).

Only a process that ends, or that has waited too long, speaks to every other one directly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..base import Patience

FINISHED, LEFT, FAILED, SECONDARY = range(1, 5)
"""How a process ended its calls; SECONDARY: it failed because another rank did."""


class Lost:
    """Processes that ended and could not say so, as far as somebody watches them for this one: by number, how."""

    how: ClassVar[dict[int, str]] = {}


_WORD_TAG, _FAREWELL_TAG, _ASK_TAG, _HERE_TAG = 1, 2, 3, 4
# Bytes for the reason of a farewell.
_REASON = 512
_FAREWELL = np.dtype([("state", "<i8"), ("rank", "<i8"), ("calls", "<i8"), ("reason", "u1", _REASON)])
# Who waits in a roll call looks at its messages every 20 ms, or when it gets a core again.
_ANSWER_S = 0.5


class RollCall:
    """What this process tells all others, and hears of them. numbers: what they are called in the whole world."""

    def __init__(self, mpi: Any, comm: Any, numbers: Sequence[int]) -> None:
        self._mpi = mpi
        self._comm = comm
        self._numbers = numbers
        self._me, self._procs = comm.Get_rank(), comm.Get_size()
        distances = [1 << k for k in range((self._procs - 1).bit_length())]
        # For each round: the least and the greatest digest.
        self._out, self._in = (np.zeros((len(distances), 2), np.uint64) for _ in range(2))
        self._rounds = [
            [
                comm.Recv_init(self._in[k], source=(self._me - far) % self._procs, tag=_WORD_TAG),
                comm.Send_init(self._out[k], dest=(self._me + far) % self._procs, tag=_WORD_TAG),
            ]
            for k, far in enumerate(distances)
        ]
        self._round = 0
        self._least = self._greatest = np.uint64(0)
        self._calls = 0  # that all have come to
        self._farewells: list[Any] = []
        self._gone: dict[int, tuple[int, int, int, str]] = {}  # state, rank, calls, reason

    def start(self, digest: int) -> None:
        """Say that this process is about to do what `digest` stands for, and begin to listen."""
        self._least = self._greatest = np.uint64(digest)
        self._round = 0
        self._start_round()

    def _start_round(self) -> None:
        if self._round < len(self._rounds):
            self._out[self._round] = self._least, self._greatest
            self._mpi.Prequest.Startall(self._rounds[self._round])
        else:
            self._calls += 1

    def all_arrived(self) -> bool:
        """True when every process has spoken."""
        while self._round < len(self._rounds):
            if not self._mpi.Request.Testall(self._rounds[self._round]):
                return False
            least, greatest = self._in[self._round]
            self._least, self._greatest = min(self._least, least), max(self._greatest, greatest)
            self._round += 1
            self._start_round()
        return True

    def agreed(self) -> bool:
        """True when every process said the same digest, and not 0."""
        return self._least == self._greatest != 0

    def missing(self) -> list[int]:
        """The processes that wait in no roll call, which is asked of each; those that do answer in `farewell`."""
        others = self._others()
        word = np.zeros(1, np.uint8)
        self._farewells += [self._comm.Isend(word, dest=proc, tag=_ASK_TAG) for proc in others]
        there = set()
        until = time.monotonic() + _ANSWER_S
        while time.monotonic() < until and len(there) < len(others):
            self._answer()
            there.update(source for source, _ in self._take(_HERE_TAG, np.uint8))
            time.sleep(0.001)
        return [proc for proc in others if proc not in there]

    def _answer(self) -> None:
        for source, word in self._take(_ASK_TAG, np.uint8):
            self._farewells.append(self._comm.Isend(word, dest=source, tag=_HERE_TAG))

    def _take(self, tag: int, dtype: Any) -> list[tuple[int, np.ndarray]]:
        """The messages with `tag` that have come, each with its source."""
        taken = []
        status = self._mpi.Status()
        while (message := self._comm.Improbe(tag=tag, status=status)) is not None:
            content = np.zeros(1, dtype)
            message.Recv(content.view(np.uint8))
            taken.append((status.Get_source(), content))
        return taken

    def farewell(self) -> tuple[int, int, int, str] | None:
        """(state, process, rank, reason) of a process that will not come to this roll call, if there is one."""
        self._answer()
        self._hear()
        gone = [
            (state, proc) for proc, (state, _, calls, _) in self._gone.items() if calls <= self._calls
        ]  # the others have spoken in this one
        if not gone:
            return self._first_lost()
        # A failure of its own explains more than an early end, and that more than a secondary failure.
        state, proc = min(gone, key=lambda end: ((FAILED, LEFT, FINISHED, SECONDARY).index(end[0]), end[1]))
        return state, proc, self._gone[proc][1], self._gone[proc][3]

    def _hear(self) -> None:
        for source, content in self._take(_FAREWELL_TAG, _FAREWELL):
            said = content[0]
            reason = said["reason"].tobytes().rstrip(b"\0").decode("utf-8", "replace")
            self._gone[source] = int(said["state"]), int(said["rank"]), int(said["calls"]), reason

    def _first_lost(self) -> tuple[int, int, int, str] | None:
        """The same of the process that ended first without a farewell."""
        for number, how in Lost.how.items():
            if number in self._numbers:
                return FAILED, self._numbers.index(number), number, how
        return None

    def last_words(self) -> dict[int, str]:
        """Why no more calls come from those processes that have said so, or of which others have."""
        self._hear()
        lost = {
            self._numbers.index(number): how for number, how in Lost.how.items() if number in self._numbers
        }
        return {proc: reason for proc, (_, _, _, reason) in self._gone.items()} | lost

    def send_farewell(self, state: int, rank: int, reason: str) -> None:
        """Say that no more calls come from this process."""
        word = np.zeros(1, _FAREWELL)
        encoded = reason.encode("utf-8", "replace")[:_REASON]
        word["state"], word["rank"], word["calls"] = state, rank, self._calls
        word["reason"][0, : len(encoded)] = np.frombuffer(encoded, np.uint8)
        self._farewells += [
            self._comm.Isend(word.view(np.uint8), dest=proc, tag=_FAREWELL_TAG)
            for proc in self._others()
            if self._numbers[proc] not in Lost.how  # MPI may try to reach it for ever
        ]

    def _others(self) -> list[int]:
        # The next ones first, so that not all speak to one process at once.
        return [(self._me + far) % self._procs for far in range(1, self._procs)]

    def all_have_left(self) -> bool:
        """True when every other process has left the group too, and what this one said has gone out."""
        self._hear()
        left = sum(state == LEFT for state, *_ in self._gone.values())
        return left == self._procs - 1 and self._mpi.Request.Testall(self._farewells)

    def free(self) -> None:
        """Give back what MPI keeps for the words."""
        for requests in self._rounds:
            for request in requests:
                request.Free()

    def receive_farewells(self, timeout: float) -> None:
        """Wait until all others have said farewell."""
        deadline = time.monotonic() + timeout
        patience = Patience()
        while len(self._gone) < self._procs - 1 or not self._mpi.Request.Testall(self._farewells):
            self._answer()
            self._hear()
            if Lost.how or time.monotonic() > deadline:
                return
            patience.pause()
