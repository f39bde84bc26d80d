"""The processes of a job as their messages show them: who has reported, failed, finished or fallen silent."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import verdict
from .channel import Failure, Receiver, failure_from
from .plan import Plan

_READ = 64 * 1024

_MPI_SEGMENT = re.compile(r"/dev/shm/(?:mpich_shm_|sm_segment\.)[\w.-]+")


@dataclass(eq=False)
class Member:
    """One process that hosts ranks."""

    fd: int
    ranks: range
    pid: int | None
    spawned: bool
    """Whether the launcher started it itself and so learns of its end from the kernel."""
    receiver: Receiver = field(default_factory=Receiver)
    done: bool = False
    failed: bool = False
    open: bool = True

    @property
    def silent(self) -> bool:
        """Whether it has said neither that it finished nor that it failed."""
        return not (self.done or self.failed)


class Members:
    """All members of a job. `on_failure` is called with each failure as it becomes known."""

    def __init__(
        self, plan: Plan, selector: selectors.BaseSelector, on_failure: Callable[[Failure], None]
    ) -> None:
        self._plan = plan
        self._selector = selector
        self._on_failure = on_failure
        self._members: list[Member] = []
        self._listener: socket.socket | None = None

    def __len__(self) -> int:
        """How many processes have told who they are."""
        return sum(member.pid is not None for member in self._members)

    def listen(self) -> str:
        """Let processes connect by themselves; returns the address for their command line."""
        if sys.platform == "linux":
            # The end of such a connection is known at once, that of a TCP connection only when the
            # kernel comes to it: too late, at times, to tell who died first.
            name = f"ddpgrad-{secrets.token_hex(6)}"
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(f"\0{name}")
            self._listener.listen(self._plan.procs)
            address = f"unix:{name}"
        else:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=self._plan.procs)
            address = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        return address

    def add(self, fd: int, ranks: range, pid: int) -> Member:
        """Watch the messages of a process that the launcher has started."""
        return self._watch(Member(fd, ranks, pid, spawned=True))

    def ended(self, member: Member, status: int) -> None:
        """Judge a spawned process that has ended with `status` (negative: minus a signal)."""
        self._read_all(member)
        if member.silent or (member.done and status != 0):
            self._fail(member, status)

    def read_all(self) -> None:
        """Take in what has already been sent."""
        if self._listener is not None:
            while self._accept(self._listener.fileno()):
                pass
        for member in self._members[:]:
            self._read_all(member)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every member that is still there.

        An open channel, or a child that was not reaped, keeps a process number from being a stranger's.
        """
        for member in self._members:
            if member.pid is not None and (member.open or member.spawned):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.pid, number)

    def mpi_segments(self) -> set[Path]:
        """The files in shared memory that an MPI library has made for the members that still run.

        MPICH and Open MPI remove them when a job ends well, and forget them when a rank is killed.
        """
        found = set()
        for member in self._members:
            if member.open and member.pid is not None and not member.spawned:
                with contextlib.suppress(OSError):  # it has just ended
                    maps = Path(f"/proc/{member.pid}/maps").read_text(errors="replace")
                    found |= {Path(file) for file in _MPI_SEGMENT.findall(maps)}
        return found

    def close(self) -> None:
        for member in self._members:
            self._close(member)
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()

    def _accept(self, fd: int) -> bool:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        self._watch(Member(connection.detach(), range(0), None, spawned=False))
        return True

    def _watch(self, member: Member) -> Member:
        os.set_blocking(member.fd, False)
        self._members.append(member)
        self._selector.register(member.fd, selectors.EVENT_READ, lambda fd: self._read(member))
        return member

    def _read_all(self, member: Member) -> None:
        while member.open and self._read(member):
            pass

    def _read(self, member: Member) -> bool:
        """Read once; False when there is nothing to read, now or ever again."""
        try:
            data = os.read(member.fd, _READ)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self._close(member)
            # A spawned process is judged by its exit status, in `ended`. And mpiexec itself ends
            # the others when one has failed: they are no news.
            known = any(other.failed for other in self._members)
            if not member.spawned and member.pid is not None and member.silent and not known:
                self._fail(member, None)
            return False
        for message in member.receiver.feed(data):
            if not self._take(member, message):
                self._close(member)
                return False
        return True

    def _take(self, member: Member, message: dict) -> bool:
        """Act on a message; False when it comes from a stranger."""
        kind = message.get("kind")
        if kind == "hello":
            if message["job"] != self._plan.job:
                return False
            ranks = message["ranks"]
            member.ranks, member.pid = range(ranks[0], ranks[-1] + 1), message["pid"]
        elif member.pid is None:
            return False
        elif kind == "failed":
            member.failed = True
            self._on_failure(failure_from(message))
        elif kind == "done":
            member.done = True
        return True

    def _fail(self, member: Member, status: int | None) -> None:
        member.failed = True
        crash = member.receiver.crash_text
        self._on_failure(verdict.ended_silently(member.ranks, status, crash))

    def _close(self, member: Member) -> None:
        if member.open:
            member.open = False
            self._selector.unregister(member.fd)
            os.close(member.fd)
