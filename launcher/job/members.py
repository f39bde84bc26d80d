"""The processes of a job as their messages show them: who has reported, failed, finished or fallen silent."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import blame, children, keepalive
from ddpgrad.distributed.failure.channel import Failure, Receiver, failure_from
from ddpgrad.distributed.failure.watchdog import Progress

from .hosts import deal
from .plan import Plan

_READ = 64 * 1024

# What a process may take to start before it counts as standing still.
_START_S = 30.0

# Of connections that have not shown to be of this job; the oldest makes room for the next.
_MAX_STRANGERS = 64


@dataclass(eq=False)
class Member:
    """One process that hosts ranks."""

    fd: int
    ranks: range
    pid: int
    spawned: bool
    """Whether the launcher started it itself and so learns of its end from the kernel."""
    token: bytes = b""
    """What it has yet to say first, to show that it is of this job."""
    heard: bytes = b""
    """What came before that was complete."""
    receiver: Receiver = field(default_factory=Receiver)
    done: bool = False
    failed: bool = False
    preempted: int | None = None
    """The step that was saved before the process ended on request."""
    accounted: bool = False
    """Whether its agent has said that it ended."""
    open: bool = True
    began_at: float = field(default_factory=time.monotonic)
    progress: dict[int, Progress] = field(default_factory=dict)
    """By rank."""

    @property
    def silent(self) -> bool:
        """Whether it has said neither that it finished nor that it failed."""
        return not (self.done or self.failed or self.preempted is not None)

    def place(self, rank: int) -> Progress:
        """How far `rank` has come; of one that was not heard of yet, that it has just begun."""
        if rank not in self.progress:
            starts = self.began_at + _START_S
            self.progress[rank] = Progress(rank, changed_at=starts, beat_at=starts)
        return self.progress[rank]


class Members:
    """All members of a job. `on_failure` is called with each failure as it becomes known."""

    def __init__(
        self, plan: Plan, selector: selectors.BaseSelector, on_failure: Callable[[Failure], None]
    ) -> None:
        self._plan = plan
        self._selector = selector
        self._on_failure = on_failure
        self.on_beat: Callable[[int], None] = lambda rank: None
        self._members: list[Member] = []
        self._listener: socket.socket | None = None
        self._token = b""  # what connections begin with where anybody can connect
        self._strangers: list[Member] = []  # connections that have not said it yet
        # Ends of connections in the order in which they came. The selector does not keep it: what it
        # has reported once, it looks at again before what is new.
        self._ends: select.epoll | None = None
        self._ended: list[int] = []

    def __len__(self) -> int:
        """How many processes have begun."""
        return len(self._members)

    def listen(self) -> str:
        """Let processes connect by themselves; returns the address for their command line."""
        if sys.platform != "linux":
            raise LaunchError("--mpi works on Linux only; start the script with mpiexec directly")
        if self._plan.hosts or self._plan.slurm:
            return self._listen_to_hosts()
        # The end of such a connection is known at once, that of a TCP connection only when the
        # kernel comes to it: too late, at times, to tell who died first.
        name = f"ddpgrad-{secrets.token_hex(6)}"
        self._ends = select.epoll()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{name}")
        self._listener.listen(self._plan.procs)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        return f"unix:{name}"

    def _listen_to_hosts(self) -> str:
        """As `listen`, on TCP: the processes may run elsewhere, and anybody may connect."""
        self._token = secrets.token_hex(16).encode()
        # Hosts that are this one need no open port.
        names = [host.name for host in self._plan.hosts] or [""]
        near = all(name in ("localhost", "127.0.0.1") for name in names)
        self._listener = socket.create_server(("127.0.0.1" if near else "", 0), backlog=128)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        here = ["127.0.0.1"] if near else [address_towards(names[0]), socket.gethostname()]
        if self._plan.nodes is not None:
            here = [self._plan.nodes.address]
        places = ",".join(dict.fromkeys(filter(None, here)))
        return f"tcp:{self._token.decode()}@{self._listener.getsockname()[1]}@{places}"

    def add(self, fd: int, ranks: range, pid: int) -> Member:
        """Watch the messages of a process that the launcher has started."""
        return self._watch(Member(fd, ranks, pid, spawned=True))

    def ended(self, member: Member, status: int) -> None:
        """Judge a spawned process that has ended with `status` (negative: minus a signal)."""
        self._read_all(member)
        self._judge(member, status)

    def _judge(self, member: Member, status: int) -> None:
        if member.silent or (member.done and status != 0):
            self._fail(member, status)

    def _known(self) -> bool:
        """Whether a failure is known. mpiexec itself ends the others then: they are no news."""
        return any(member.failed for member in self._members)

    def read_all(self) -> None:
        """Take in what has already been sent."""
        if self._listener is not None:
            while self._accept(self._listener.fileno()):
                pass
            for stranger in self._strangers[:]:
                self._meet(stranger)
        for member in self._members[:]:
            self._read_all(member)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every member that is still there, through its agent if it has one.

        A child that was not reaped keeps a process number from being a stranger's.
        """
        for member in self._members:
            if member.spawned:
                with contextlib.suppress(ProcessLookupError):
                    children.send(member.pid, number)
            elif member.open:
                self._command(member, signal=int(number))

    @staticmethod
    def _command(member: Member, **command: Any) -> None:
        with contextlib.suppress(OSError):  # it is just leaving
            os.write(member.fd, json.dumps(command).encode() + b"\n")

    def at_work(self) -> list[Progress]:
        """How far the ranks have come that still run."""
        return [m.place(rank) for m in self._members if m.silent and m.open for rank in m.ranks]

    def progress(self) -> dict[int, Progress]:
        """How far every rank has come."""
        found = {rank: m.place(rank) for m in self._members for rank in m.ranks}
        return {rank: found[rank] for rank in sorted(found)}

    def crash_texts(self) -> dict[int, str]:
        """By rank, what `faulthandler` said in its process: a crash, or the stacks that it was asked for."""
        return {rank: m.receiver.crash_text for m in self._members for rank in m.ranks}

    def preempted(self) -> int | None:
        """The step after which all ranks have ended on request; None if one did not."""
        steps = [member.preempted for member in self._members]
        return steps[0] if steps and None not in steps else None

    def all_done(self) -> bool:
        """Whether every process has come to the end of its script."""
        return len(self._members) == self._plan.procs and all(member.done for member in self._members)

    def reported(self, ranks: Iterable[int]) -> bool:
        """Whether the processes of `ranks` have said how they ended."""
        return not any(m.silent for m in self._members if set(m.ranks) & set(ranks))

    def lost(self) -> dict[str, range]:
        """The hosts that were lost, with their ranks; known when all ranks were to end and `awaits_word` is False.

        Every agent says that its process ended. A host none of whose agents does so is gone; unless
        that is so everywhere, which tells nothing of the hosts.
        """
        gone = self._plan.nodes.gone if self._plan.nodes is not None else set()
        heard = any(member.accounted for member in self._members)
        return {
            name: ranks
            for name, ranks, members in self._by_host()
            if name in gone or (heard and _without_word(members))
        }

    def awaits_word(self) -> bool:
        """Whether there is a host that seems lost, and an agent there that may yet say that its process ended."""
        return any(
            _without_word(members) and any(member.open for member in members)
            for _, _, members in self._by_host()
        )

    def _by_host(self) -> Iterator[tuple[str, range, list[Member]]]:
        """Each host with its ranks and members; none where the launcher has not chosen the hosts."""
        for host, procs in deal(self._plan.hosts, self._plan.procs):
            ranks = range(self._plan.ranks(procs[0])[0], self._plan.ranks(procs[-1])[-1] + 1)
            yield host.name, ranks, [m for m in self._members if m.ranks and m.ranks[0] in ranks]

    def close(self) -> None:
        for member in (*self._members, *self._strangers):
            self._close(member)
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
        if self._ends is not None:
            self._ends.close()

    def _accept(self, fd: int) -> bool:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        if self._token:
            if len(self._strangers) >= _MAX_STRANGERS:
                self._close(self._strangers[0])
            keepalive.probe(connection, answers=True)
            stranger = Member(connection.detach(), range(0), 0, spawned=False, token=self._token)
            self._strangers.append(stranger)
            os.set_blocking(stranger.fd, False)
            self._selector.register(stranger.fd, selectors.EVENT_READ, lambda fd: self._meet(stranger))
            return True
        pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user == os.getuid():
            self._watch(Member(connection.detach(), range(0), pid, spawned=False))
        else:
            connection.close()  # anybody on this host can connect
        return True

    def _meet(self, stranger: Member) -> None:
        """Hear whether a connection begins with the job's token; until it does, it is nobody's."""
        wanted = stranger.token + b"\n"
        try:
            data = os.read(stranger.fd, len(wanted) - len(stranger.heard))
        except BlockingIOError:
            return
        except OSError:  # reset, or its host is gone
            data = b""
        stranger.heard += data
        if not data or not wanted.startswith(stranger.heard):
            self._close(stranger)
        elif stranger.heard == wanted:
            self._strangers.remove(stranger)
            self._selector.unregister(stranger.fd)
            self._watch(stranger)

    def _watch(self, member: Member) -> Member:
        os.set_blocking(member.fd, False)
        self._members.append(member)
        if self._ends is not None:
            self._ends.register(member.fd, select.EPOLLRDHUP | select.EPOLLET)
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
        except OSError:  # reset, or its host is gone
            data = b""
        if not data:
            first = self._first_to_end(member)
            if first is not member:
                self._read_all(first)  # it says why, or is judged, before this one
            self._close(member)
            # A spawned process is judged by its exit status, in `ended`.
            if not member.spawned and member.silent and not self._known():
                self._fail(member, None)
            return False
        for message in member.receiver.feed(data):
            self._take(member, message)
        return True

    def _first_to_end(self, member: Member) -> Member:
        """The first open member, in order of time, whose connection has ended: `member` or one before it."""
        if self._ends is None:
            return member
        self._ended += [fd for fd, _ in self._ends.poll(0)]
        still_open = {other.fd: other for other in self._members if other.open}
        return next((still_open[fd] for fd in self._ended if fd in still_open), member)

    def _take(self, member: Member, message: dict[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "hello":
            ranks = message["ranks"]
            member.ranks = range(ranks[0], ranks[-1] + 1)
            member.progress = {rank: Progress(rank) for rank in ranks}
        elif kind == "failed":
            member.failed = True
            failure = failure_from(message)
            self._on_failure(failure if failure.ranks else replace(failure, ranks=tuple(member.ranks)))
        elif kind == "done":
            member.done = True
        elif kind == "preempted":
            member.preempted = message["step"]
        elif kind == "ended":
            member.accounted = True
            self._judge(member, message["status"])
            if not member.failed:
                self._command(member, leave=True)
        elif kind == "orphaned":
            member.accounted = True
            if member.silent and not self._known():
                member.failed = True
                self._on_failure(blame.orphaned(member.ranks))
        elif kind == "beat":
            place = member.place(message["rank"])
            place.beat(tuple(message["counters"]), message["last"], message["waited"])
            self.on_beat(message["rank"])

    def _fail(self, member: Member, status: int | None) -> None:
        member.failed = True
        crash = member.receiver.crash_text
        place = min((member.place(rank) for rank in member.ranks), key=lambda p: p.steps, default=None)
        self._on_failure(blame.ended_silently(member.ranks, status, crash, place))

    def _close(self, member: Member) -> None:
        if member.open:
            member.open = False
            self._selector.unregister(member.fd)
            os.close(member.fd)
            if member in self._strangers:
                self._strangers.remove(member)


def _without_word(members: Iterable[Member]) -> bool:
    """Whether of all that had not come to the end of their script no agent has said that they ended."""
    left = [member for member in members if not member.done]
    return bool(left) and not any(member.accounted for member in left)


def address_towards(host: str) -> str:
    """The address of this host as `host` sees it; '' where that cannot be told."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return probe.getsockname()[0]
    return ""
