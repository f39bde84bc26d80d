"""The failure report of one host, where a job under plain mpirun or srun fails.

The first process of the host that notices a failure collects the report (see reporter.py). The others send
their part by themselves when they notice the failure. Those that do not are asked for their stacks, which
they write also where they compute, are stopped, or hold the interpreter lock.
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
from ..transports import process_monitor
from ..transports.mpi.roll_call import Lost
from . import blame, exit_codes, report_files, stacks_signal, summary
from .channel import Failure, Receiver, failure_from
from .stacks_signal import STACKS_SIGNAL
from .watchdog import Progress, Stall

# Time for other ranks to report, before those that have not are asked for their stacks.
_SETTLE_S = 0.3
# Time to write them.
_STACKS_S = 1.0
# While only secondary failures are known: time for the rank at fault, maybe on another host, to report.
_SETTLE_SECONDARY_S = 3.0
# Time between SIGTERM and SIGKILL.
_GRACE_S = 2.0
_READ = 64 * 1024


@dataclass(frozen=True)
class LocalPeer:
    """Another rank, whose process runs on this host."""

    pid: int
    stacks: str
    """The name of the file in memory into which it writes its stacks; it has none if it does not answer STACKS_SIGNAL."""

    def ask(self) -> None:
        """Ask for its stacks; a stopped process writes them when it continues."""
        if self._stacks() is not None:
            with contextlib.suppress(ProcessLookupError):
                stacks_signal.send(self.pid, STACKS_SIGNAL)

    def resume(self) -> None:
        """Let it continue if it is stopped."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def dump(self) -> str:
        """The stacks that it has written; '' if there are none, or the process is gone."""
        try:
            stacks = self._stacks()
            return stacks.read_text(errors="replace") if stacks is not None else ""
        except OSError:
            return ""

    def _stacks(self) -> Path | None:
        """Where this process finds that file; None if there is none, or the process is gone."""
        with contextlib.suppress(OSError):
            for open_file in Path(f"/proc/{self.pid}/fd").iterdir():
                if str(open_file.readlink()).startswith(f"/memfd:{self.stacks} "):
                    return open_file
        return None

    def end(self, number: int) -> bool:
        """Send it a signal, if it is there still; whether it is."""
        # Its number may be another process's by now, but not its file.
        if self.has_ended() or self._stacks() is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return True

    def has_ended(self) -> bool:
        """See `process_monitor.has_ended`."""
        return process_monitor.has_ended(self.pid)


@dataclass
class _Connection:
    """A connection of another process, and its rank as soon as it is known."""

    receiver: Receiver = field(default_factory=Receiver)
    rank: int | None = None


@dataclass
class FailureReport:
    """The known facts about a failure. Others report at `listener`; `peers` are the other ranks of this host."""

    listener: socket.socket
    peers: Mapping[int, LocalPeer]
    folder: Path | None
    failures: list[Failure] = field(default_factory=list)
    progress: dict[int, Progress] = field(default_factory=dict)
    """By rank, of all ranks that have reported, if only in part."""
    _reported: set[int | None] = field(default_factory=set)
    _dumps: dict[int, str] = field(default_factory=dict)

    def collect(self, failure: Failure, own: Progress) -> int:
        """Add to `failure`, of the rank of `own`, the reports of the others; print all and return the exit code."""
        self.failures.append(failure)
        self.progress[own.rank] = own
        self._listen()
        dumps = {rank: peer.dump() or self._dumps.get(rank, "") for rank, peer in self.peers.items()}
        for known in self.failures:
            if len(known.ranks) == 1:
                dumps[known.ranks[0]] = dumps.get(known.ranks[0]) or known.text
        self._add_silent_ranks(dumps)
        first = blame.first_failure(self.failures)
        code = exit_codes.OF_CAUSE[first.cause]
        self._publish(first, code, dumps)
        return code

    def end_all(self) -> None:
        """End the other ranks of this host, where no launcher does: politely, and after a while not."""
        until = time.monotonic() + _GRACE_S
        number = signal.SIGTERM
        while [peer for peer in self.peers.values() if peer.end(number)]:
            number = signal.SIGKILL if time.monotonic() > until else 0
            time.sleep(0.02)

    def _listen(self) -> None:
        began = time.monotonic()
        asked = False
        with selectors.DefaultSelector() as selector:
            self.listener.setblocking(False)
            selector.register(self.listener, selectors.EVENT_READ)
            while not self._is_complete(now := time.monotonic(), began):
                if not asked and now >= began + _SETTLE_S:
                    asked = True
                    missing = self._missing()
                    for peer in missing:
                        peer.ask()
                    # Not before all are asked: when a stopped rank continues, those that wait for it may, too.
                    for peer in missing:
                        peer.resume()
                for key, _ in selector.select(0.05):
                    if key.data is None:
                        self._accept(selector)
                    else:
                        self._read(selector, key.fd, key.data)

    def _is_complete(self, now: float, began: float) -> bool:
        waited = now - began
        if waited < _SETTLE_S:
            return False
        if not self._cause_is_known():
            return waited >= _SETTLE_SECONDARY_S
        return waited >= _SETTLE_S + _STACKS_S or all(peer.has_ended() for peer in self._missing())

    def _cause_is_known(self) -> bool:
        return any(not failure.secondary or failure.cause == "stall" for failure in self.failures) or bool(
            self._dead()
        )

    def _missing(self) -> list[LocalPeer]:
        return [peer for rank, peer in self.peers.items() if rank not in self._reported]

    def _dead(self) -> list[int]:
        """The ranks that others lost, and that ended with neither a report nor the end of their script."""
        blamed = {rank for f in self.failures if guard.ENDED_WELL not in f.error for rank in f.blames}
        known = {rank for failure in self.failures for rank in failure.ranks}
        return sorted(
            rank
            for rank in blamed - known
            if rank in Lost.how or (rank in self.peers and self.peers[rank].has_ended())
        )

    def _accept(self, selector: selectors.BaseSelector) -> None:
        connection, _ = self.listener.accept()
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.getuid():  # anybody on this host can connect
            connection.close()
            return
        # It stays open: the other process ends when this connection does.
        connection.setblocking(False)
        selector.register(connection.detach(), selectors.EVENT_READ, _Connection())

    def _read(self, selector: selectors.BaseSelector, fd: int, connection: _Connection) -> None:
        data = os.read(fd, _READ)
        if not data:
            selector.unregister(fd)
            os.close(fd)
            self._reported.add(connection.rank)
        for message in connection.receiver.feed(data):
            if message["kind"] == "heartbeat":
                rank = connection.rank = message["rank"]
                known = self.progress.setdefault(rank, Progress(rank))
                known.update(tuple(message["counters"]), message["last"])
                if rank in self.peers and not self._dumps.get(rank):
                    self._dumps[rank] = self.peers[rank].dump()  # it may go on, and end
            elif message["kind"] == "failed":
                self.failures.append(failure_from(message))
                self._reported.add(connection.rank)

    def _add_silent_ranks(self, dumps: Mapping[int, str]) -> None:
        """Add the failures of ranks at fault that cannot report: they died, or hold up the others."""
        dead = self._dead()
        for rank in dead:
            self.failures.append(
                blame.ended_silently(
                    range(rank, rank + 1), None, dumps.get(rank, ""), self.progress.get(rank)
                )
            )
        stalled = next((f for f in self.failures if f.cause == "stall" and f.secondary and f.blames), None)
        if stalled is not None and not dead:
            stall = Stall(stalled.blames, stalled.error)
            self.failures.append(blame.stalled(stall, self.progress, dumps, self.failures))

    def _publish(self, first: Failure, code: int, dumps: Mapping[int, str]) -> None:
        text = ""
        if self.folder is not None:
            text = self._write(first, code, dumps)
            text += f"ddpgrad: the stacks and last collectives of all ranks are in {self.folder}\n"
        else:
            # The rank at fault comes last, as the most important.
            for rank in sorted({*self.progress, *dumps}, key=lambda rank: (rank in first.ranks, rank)):
                text += describe_rank(
                    rank, self.progress.get(rank), "" if rank in first.ranks else dumps.get(rank, "")
                )
        text += summary.describe(self.failures, program="ddpgrad")
        stream = sys.__stderr__ or sys.stderr
        stream.write(text)
        stream.flush()

    def _write(self, first: Failure, code: int, dumps: Mapping[int, str]) -> str:
        """Write the folder's files; '' or a line about the error."""
        assert self.folder is not None
        # Where several hosts report, the host of the rank at fault knows most.
        elsewhere = not {*first.ranks} & {*self.peers, *self.progress}
        if (first.secondary or elsewhere) and (self.folder / report_files.REPORT).exists():
            return ""
        restarts = environment.restart_count()
        try:
            report_files.write_failure(self.folder, self.failures, code, self.progress, dumps, restarts)
        except OSError as error:
            return f"ddpgrad: the report in {self.folder} is incomplete: {error}\n"
        return ""


def describe_rank(rank: int, progress: Progress | None, stacks: str) -> str:
    """The last collectives of a rank, and its stacks."""
    lines: list[str] = []
    if progress is not None:
        began = progress.counters[0]
        lines = [f"ddpgrad: rank {rank} began {began} collective{'s' * (began != 1)}, at last"]
        lines += [f"  {what}" for what in progress.last]
    if stacks:
        lines += [f"ddpgrad: rank {rank} was at", stacks.rstrip("\n")]
    return "".join(f"{line}\n" for line in lines)
