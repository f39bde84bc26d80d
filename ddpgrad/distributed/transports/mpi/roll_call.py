"""The roll call before each collective: MPI processes exchange a word each.

A word announces the next collective, or the end of the process. So nobody waits inside
MPI, which cannot name whom it waits for, before all are known to come.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..base import Patience

CALLING, FINISHED, FAILED, SECONDARY = range(4)
"""The states of a process; SECONDARY: it failed because another rank did."""


class Lost:
    """Processes that ended and could not say so, as far as somebody watches them for this one: by number, how."""

    how: ClassVar[dict[int, str]] = {}


_WORD_TAG, _REASON_TAG = 1, 2
# Bytes for the reason of a last word.
_REASON = 512


class RollCall:
    """Sends this process's word to all others, and hears theirs. numbers: what they are called in the whole world."""

    def __init__(self, mpi: Any, comm: Any, numbers: Sequence[int]) -> None:
        self._mpi = mpi
        self._comm = comm
        self._numbers = numbers
        me, procs = comm.Get_rank(), comm.Get_size()
        self._others = [proc for proc in range(procs) if proc != me]
        # digest, state, and the rank that failed
        self._out = np.zeros(3, np.uint64)
        self._in = np.zeros((procs, 3), np.uint64)
        self._receives = {
            proc: comm.Recv_init(self._in[proc], source=proc, tag=_WORD_TAG) for proc in self._others
        }
        sends = [comm.Send_init(self._out, dest=proc, tag=_WORD_TAG) for proc in self._others]
        self._requests = [*self._receives.values(), *sends]
        self._last_words: list[Any] = []
        self._reasons: dict[int, str] = {}  # of those that have left

    def start(self, digest: int) -> None:
        """Say that this process is about to do what `digest` stands for, and begin to listen."""
        self._out[0] = digest
        self._in[:, 1] = CALLING
        self._mpi.Prequest.Startall(self._requests)

    def all_arrived(self) -> bool:
        """True when every process has spoken."""
        return self._mpi.Request.Testall(self._requests)

    def agreed(self, digest: int) -> bool:
        """True when every process said `digest`."""
        return digest != 0 and all(self._in[proc, 0] == digest for proc in self._others)

    def anyone_left(self) -> bool:
        """True when a process spoke its last word."""
        return bool(self._in[:, 1].any())

    def missing(self) -> list[int]:
        """The processes that have not spoken."""
        return [proc for proc, receive in self._receives.items() if not receive.Test()]

    def farewell(self) -> tuple[int, int, int, str] | None:
        """(state, process, rank, reason) of a process that spoke its last word, if one did."""
        gone = [
            (int(self._in[proc, 1]), proc)
            for proc, receive in self._receives.items()
            if receive.Test() and self._in[proc, 1] != CALLING
        ]
        if not gone:
            return self._first_lost()
        # A failure of its own explains more than an early end, and that more than a secondary failure.
        state, proc = min(gone, key=lambda end: ((FAILED, FINISHED, SECONDARY).index(end[0]), end[1]))
        return state, proc, int(self._in[proc, 2]), self._reason(proc)

    def _first_lost(self) -> tuple[int, int, int, str] | None:
        """The same of the process that ended first without a last word."""
        for number, how in Lost.how.items():
            if number in self._numbers and not self._receives[proc := self._numbers.index(number)].Test():
                return FAILED, proc, number, how
        return None

    def last_word_of(self, proc: int) -> str | None:
        """Why no more calls come from `proc`, if it has said so, or others have."""
        if self._numbers[proc] in Lost.how:
            return Lost.how[self._numbers[proc]]
        if proc not in self._reasons and not self._comm.Iprobe(source=proc, tag=_REASON_TAG):
            return None
        return self._reason(proc)

    def _reason(self, proc: int) -> str:
        if proc not in self._reasons:
            reason = np.zeros(_REASON, np.uint8)
            self._comm.Recv(reason, source=proc, tag=_REASON_TAG)
            self._reasons[proc] = reason.tobytes().rstrip(b"\0").decode("utf-8", "replace")
        return self._reasons[proc]

    def send_farewell(self, state: int, rank: int, reason: str) -> None:
        """Say that no more calls come from this process."""
        word = np.array([0, state, rank], np.uint64)
        text = np.zeros(_REASON, np.uint8)
        encoded = reason.encode("utf-8", "replace")[:_REASON]
        text[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        for proc in self._others:
            if self._numbers[proc] in Lost.how:
                continue  # MPI may try to reach it for ever
            self._last_words += [
                self._comm.Isend(word, dest=proc, tag=_WORD_TAG),
                self._comm.Isend(text, dest=proc, tag=_REASON_TAG),
            ]

    def listen(self) -> None:
        """Begin to listen for the next word of every other process; this one has spoken its last."""
        self._in[:, 1] = CALLING
        self._mpi.Prequest.Startall(list(self._receives.values()))

    def all_have_left(self) -> bool:
        """True when every other process has spoken its last word too, and what this one said has gone out."""
        requests = [*self._receives.values(), *self._last_words]
        return self._mpi.Request.Testall(requests) and all(
            self._in[proc, 1] != CALLING for proc in self._others
        )

    def free(self) -> None:
        """Give back what MPI keeps for the words."""
        for proc in self._others:
            self._reason(proc)
        for request in self._requests:
            request.Free()

    def receive_last_words(self, timeout: float) -> None:
        """Wait for the words that `listen` began to hear, and for the reason if it was the last one."""
        receives = list(self._receives.values())
        deadline = time.monotonic() + timeout
        patience = Patience()
        while not self._mpi.Request.Testall(receives):
            if Lost.how or time.monotonic() > deadline:
                return
            patience.pause()
        for proc in self._others:
            if self._in[proc, 1] != CALLING:
                self._reason(proc)
        while not self._mpi.Request.Testall(self._last_words) and time.monotonic() < deadline:
            patience.pause()
