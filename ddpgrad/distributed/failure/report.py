"""Finds out, on the host where a job under plain mpirun or srun fails, what its ranks saw; says it, and writes it down.

The first process of a host that knows of a failure holds the inquest (see reporter.py). The others come to it by
themselves when they notice. Those that do not are asked for their stacks, which they show also where they
compute, are stopped, or hold the interpreter lock.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...core import environment
from ..protocol import guard
from . import blame, children, exit_codes, logs
from .channel import STACKS_SIGNAL, Failure, Receiver, failure_from
from .watchdog import Progress, Stall

# Time for others to say what they saw, before those that have not are asked for their stacks.
_SETTLE_S = 0.3
# Time to show them.
_STACKS_S = 1.0
# While all that is known is that a rank lost a peer: time for the peer, maybe of another host, to say why.
_SETTLE_VICTIM_S = 3.0
_READ = 64 * 1024


@dataclass(frozen=True)
class Neighbour:
    """A rank whose process runs on this host."""

    pid: int
    stacks: int
    """Its file descriptor that the stacks go to when it gets STACKS_SIGNAL; -1: it takes no such signal."""

    def ask(self) -> None:
        """Have it write its stacks; if it is stopped, once it goes on."""
        if self.stacks >= 0:
            with contextlib.suppress(ProcessLookupError):
                children.send(self.pid, STACKS_SIGNAL)

    def go_on(self) -> None:
        """Have it go on if it is stopped."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def shown(self) -> str:
        """The stacks that it wrote; '' if it did not, or has ended."""
        if self.stacks < 0:
            return ""
        try:
            return Path(f"/proc/{self.pid}/fd/{self.stacks}").read_text(errors="replace")
        except OSError:
            return ""

    def has_ended(self) -> bool:
        """Whether the process is gone, even if its parent has not looked yet."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True


@dataclass
class _Speaker:
    """A connection, and the rank that has spoken there."""

    receiver: Receiver = field(default_factory=Receiver)
    rank: int | None = None


@dataclass
class Inquest:
    """What is known of a failure. Listens at `listener`; `neighbours` are the other ranks of this host."""

    listener: socket.socket
    neighbours: Mapping[int, Neighbour]
    folder: Path | None
    failures: list[Failure] = field(default_factory=list)
    progress: dict[int, Progress] = field(default_factory=dict)
    """By rank, of those that were heard, if only in part."""
    _heard: set[int | None] = field(default_factory=set)

    def hear(self, failure: Failure, own: Progress) -> int:
        """Collect what there is to know beside `failure`, of the rank of `own`, and report it; the job's exit code."""
        self.failures.append(failure)
        self.progress[own.rank] = own
        self._listen()
        dumps = {rank: neighbour.shown() for rank, neighbour in self.neighbours.items()}
        for known in self.failures:
            if len(known.ranks) == 1:
                dumps[known.ranks[0]] = dumps.get(known.ranks[0]) or known.text
        self._add_the_silent(dumps)
        first = blame.first_failure(self.failures)
        code = exit_codes.OF_CAUSE[first.cause]
        self._say(first, code, dumps)
        return code

    def _listen(self) -> None:
        began = time.monotonic()
        asked = False
        with selectors.DefaultSelector() as selector:
            self.listener.setblocking(False)
            selector.register(self.listener, selectors.EVENT_READ)
            while not self._is_over(now := time.monotonic(), began):
                if not asked and now >= began + _SETTLE_S:
                    asked = True
                    silent = self._unheard()
                    for neighbour in silent:
                        neighbour.ask()
                    # Not before all are asked: with a stopped rank, what others wait for may go on as well.
                    for neighbour in silent:
                        neighbour.go_on()
                for key, _ in selector.select(0.05):
                    if key.data is None:
                        self._accept(selector)
                    else:
                        self._read(selector, key.fd, key.data)

    def _is_over(self, now: float, began: float) -> bool:
        waited = now - began
        if waited < _SETTLE_S:
            return False
        if not self._cause_is_known():
            return waited >= _SETTLE_VICTIM_S
        return waited >= _SETTLE_S + _STACKS_S or all(n.has_ended() for n in self._unheard())

    def _cause_is_known(self) -> bool:
        return any(not failure.victim or failure.cause == "stall" for failure in self.failures) or bool(
            self._dead()
        )

    def _unheard(self) -> list[Neighbour]:
        return [neighbour for rank, neighbour in self.neighbours.items() if rank not in self._heard]

    def _dead(self) -> list[int]:
        """The ranks that others lost, and that ended neither with a word nor with the end of their script."""
        blamed = {rank for f in self.failures if guard.ENDED_WELL not in f.error for rank in f.blames}
        spoke = {rank for failure in self.failures for rank in failure.ranks}
        return sorted(
            rank for rank in blamed - spoke if rank in self.neighbours and self.neighbours[rank].has_ended()
        )

    def _accept(self, selector: selectors.BaseSelector) -> None:
        connection, _ = self.listener.accept()
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.getuid():  # anybody on this host can connect
            connection.close()
            return
        # It stays open: its end is what lets the others go.
        connection.setblocking(False)
        selector.register(connection.detach(), selectors.EVENT_READ, _Speaker())

    def _read(self, selector: selectors.BaseSelector, fd: int, speaker: _Speaker) -> None:
        data = os.read(fd, _READ)
        if not data:
            selector.unregister(fd)
            os.close(fd)
            self._heard.add(speaker.rank)
        for message in speaker.receiver.feed(data):
            if message["kind"] == "beat":
                rank = speaker.rank = message["rank"]
                place = self.progress.setdefault(rank, Progress(rank))
                place.beat(tuple(message["counters"]), message["last"])
            elif message["kind"] == "failed":
                self.failures.append(failure_from(message))
                self._heard.add(speaker.rank)

    def _add_the_silent(self, dumps: Mapping[int, str]) -> None:
        """Speak for ranks at fault that cannot: they died, or are what the others wait for."""
        dead = self._dead()
        for rank in dead:
            self.failures.append(
                blame.ended_silently(range(rank, rank + 1), None, dumps[rank], self.progress.get(rank))
            )
        stalled = next((f for f in self.failures if f.cause == "stall" and f.victim and f.blames), None)
        if stalled is not None and not dead:
            stall = Stall(stalled.blames, stalled.error)
            self.failures.append(blame.stalled(stall, self.progress, dumps))

    def _say(self, first: Failure, code: int, dumps: Mapping[int, str]) -> None:
        text = ""
        if self.folder is not None:
            text = self._write(first, code, dumps)
            text += f"ddpgrad: the stacks and last collectives of all ranks are in {self.folder}\n"
        else:
            # Who is at fault comes last, as all that is most important.
            for rank in sorted({*self.progress, *dumps}, key=lambda rank: (rank in first.ranks, rank)):
                text += testimony(rank, self.progress.get(rank), "" if rank in first.ranks else dumps[rank])
        text += blame.describe(self.failures, speaker="ddpgrad")
        stream = sys.__stderr__ or sys.stderr
        stream.write(text)
        stream.flush()

    def _write(self, first: Failure, code: int, dumps: Mapping[int, str]) -> str:
        """Write the folder's files; '' or a line that says why that cannot be done."""
        assert self.folder is not None
        # Where several hosts hold an inquest, that of the rank at fault knows most.
        elsewhere = not {*first.ranks} & {*self.neighbours, *self.progress}
        if (first.victim or elsewhere) and (self.folder / logs.REPORT).exists():
            return ""
        restarts = environment.restart_count()
        try:
            logs.write_failure(self.folder, self.failures, code, self.progress, dumps, restarts)
        except OSError as error:
            return f"ddpgrad: the report in {self.folder} is incomplete: {error}\n"
        return ""


def testimony(rank: int, place: Progress | None, stacks: str) -> str:
    """The last collectives of a rank, and its stacks."""
    lines: list[str] = []
    if place is not None:
        began = place.counters[0]
        lines = [f"ddpgrad: rank {rank} began {began} collective{'s' * (began != 1)}, at last"]
        lines += [f"  {what}" for what in place.last]
    if stacks:
        lines += [f"ddpgrad: rank {rank} was at", stacks.rstrip("\n")]
    return "".join(f"{line}\n" for line in lines)
