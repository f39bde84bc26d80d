"""The processes of a job, as their messages show them: which have connected, failed, finished or gone silent."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddpgrad.distributed.failure import blame, stacks_signal
from ddpgrad.distributed.failure.channel import Failure, Receiver, failure_from
from ddpgrad.distributed.failure.watchdog import Progress, Stall

from .hosts import deal
from .listener import Listener
from .plan import Plan

_READ = 64 * 1024

# A process may take so long to start before it counts as stalled.
_START_S = 30.0


@dataclass(eq=False)
class JobProcess:
    """A process of the job, which hosts ranks, and its channel to the launcher."""

    fd: int
    ranks: range
    pid: int
    spawned: bool
    """Whether it is the launcher's own child, so that the kernel reports its exit status."""
    receiver: Receiver = field(default_factory=Receiver)
    done: bool = False
    done_at: float = 0.0
    failed: bool = False
    ended_at: str = ""
    """'file:line' of the `sys.exit` by which its script ended, if it did."""
    met: set[str] = field(default_factory=set)
    """The names of all meetings that it has come to."""
    meeting: str = ""
    """The one in which it waits; '' while it waits in none."""
    meets_at: str = ""
    """'file:line' of that wait."""
    meets_until: float = 0.0
    """When the others must have come."""
    meets_for: float = 0.0
    """How long it waits, in seconds."""
    saves: bool = False
    """Whether its program saves its work when it is asked to end."""
    preempted: int | None = None
    """The step that was saved before the process ended on request."""
    agent_reported: bool = False
    """Whether its agent has reported its end."""
    open: bool = True
    host: str = ""
    """Its host's own name, once the process has said it."""
    own_pid: int = 0
    """Its number there; `pid` is its agent's where it has one."""
    status: int | None = None
    """How it ended, once that is known: its exit code, or minus a signal."""
    began_at: float = field(default_factory=time.monotonic)
    progress: dict[int, Progress] = field(default_factory=dict)
    """By rank."""

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more, as far as is known."""
        return not self.open or self.status is not None

    @property
    def has_outcome(self) -> bool:
        """Whether it has reported that it finished, failed, or ended on request."""
        return self.done or self.failed or self.preempted is not None

    def progress_of(self, rank: int) -> Progress:
        """The progress of `rank`. It begins at the end of the time that a start may take."""
        if rank not in self.progress:
            starts = self.began_at + _START_S
            self.progress[rank] = Progress(rank, changed_at=starts, heartbeat_at=starts)
        return self.progress[rank]


class JobProcesses:
    """All processes of a job. `on_failure` is called with each failure as it becomes known."""

    def __init__(
        self, plan: Plan, selector: selectors.BaseSelector, on_failure: Callable[[Failure], None]
    ) -> None:
        self._plan = plan
        self._selector = selector
        self._on_failure = on_failure
        self.on_loaded: Callable[[list[str], str], None] = lambda modules, kernels: None
        self._processes: list[JobProcess] = []
        self._listener: Listener | None = None
        # The ends of connections in the order in which they came. The selector does not keep that order:
        # it reports an end that it has reported before ahead of a new one.
        self._ends: select.epoll | None = None
        self._ended: list[int] = []

    def __len__(self) -> int:
        """The number of processes that have begun."""
        return len(self._processes)

    def listen(self) -> str:
        """Let processes connect by themselves; returns the address for their command line."""
        self._listener = Listener(self._plan, self._selector, self._connected)
        if not self._listener.between_hosts:
            self._ends = select.epoll()
        return self._listener.address

    def add(self, fd: int, ranks: range, pid: int) -> JobProcess:
        """Watch the messages of a child of the launcher."""
        return self._watch(JobProcess(fd, ranks, pid, spawned=True))

    def ended(self, process: JobProcess, status: int) -> None:
        """Judge a child that has ended with `status` (negative: minus a signal)."""
        self._read_all(process)
        self._judge(process, status)

    def read_all(self) -> None:
        """Take in all messages that have already been sent."""
        if self._listener is not None:
            self._listener.accept_all()
        for process in self._processes[:]:
            self._read_all(process)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every process that is still there, through its agent if it has one.

        A child that was not reaped keeps its process number, so that the signal reaches no other process.
        """
        for process in self._processes:
            if process.spawned:
                with contextlib.suppress(ProcessLookupError):
                    stacks_signal.send(process.pid, number)
            elif process.open:
                self._command(process, signal=int(number))

    @staticmethod
    def _command(process: JobProcess, **command: Any) -> None:
        with contextlib.suppress(OSError):  # it is just leaving
            os.write(process.fd, json.dumps(command).encode() + b"\n")

    def running(self) -> list[Progress]:
        """The progress of the ranks that still run."""
        return [
            p.progress_of(rank) for p in self._processes if p.open and not p.has_outcome for rank in p.ranks
        ]

    def progress(self) -> dict[int, Progress]:
        """The progress of every rank."""
        found = {rank: p.progress_of(rank) for p in self._processes for rank in p.ranks}
        return {rank: found[rank] for rank in sorted(found)}

    def all(self) -> Sequence[JobProcess]:
        """Those that have begun."""
        return self._processes

    def crash_texts(self) -> dict[int, str]:
        """By rank, the text of `faulthandler` in its process: a crash, or the stacks that were asked for."""
        return {rank: p.receiver.crash_text for p in self._processes for rank in p.ranks}

    def forget_stacks(self) -> None:
        """Forget the texts so far: stacks are asked for again."""
        for process in self._processes:
            process.receiver.crash_text = ""

    def preempted(self) -> int | None:
        """The step after which all ranks have ended on request; None if one did not."""
        steps = [process.preempted for process in self._processes]
        return steps[0] if steps and None not in steps else None

    def all_save(self) -> bool:
        """Whether the programs of all processes save their work when they are asked to end."""
        return len(self._processes) == self._plan.procs and all(process.saves for process in self._processes)

    def all_done(self) -> bool:
        """Whether every process has come to the end of its script, and none has failed after that."""
        return len(self._processes) == self._plan.procs and all(
            process.done and not process.failed for process in self._processes
        )

    def lingering(self, seconds: float, now: float) -> Stall | None:
        """The stall of processes that go on for longer than `seconds` after all have come to the ends of their scripts."""
        left = [process for process in self._processes if not process.ended]
        if not left or not self.all_done():
            return None
        alive = [known.changed_at for process in left for known in process.progress.values()]
        if now - max(*alive, *(process.done_at for process in self._processes)) <= seconds:
            return None
        ranks = tuple(rank for process in left for rank in process.ranks)
        return Stall(ranks, f"no progress for {seconds:g} s: its script has ended, and its process has not")

    def lost_hosts(self) -> dict[str, range]:
        """The hosts that were lost, with their ranks. Valid when all ranks should have ended, and no agent is awaited.

        Every agent reports the end of its process. A host whose agents all fail to do so is lost, unless
        the agents of all hosts fail: that tells nothing about the hosts.
        """
        gone = self._plan.nodes.gone if self._plan.nodes is not None else set()
        any_reported = any(process.agent_reported for process in self._processes)
        return {
            name: ranks
            for name, ranks, there in self._by_host()
            if name in gone or (any_reported and _no_agent_reported(there))
        }

    def awaits_agents(self) -> bool:
        """Whether there is a host that seems lost, and an agent there that may still report."""
        return any(
            _no_agent_reported(there) and any(process.open for process in there)
            for _, _, there in self._by_host()
        )

    def _by_host(self) -> Iterator[tuple[str, range, list[JobProcess]]]:
        """Each host with its ranks and processes; none where the launcher has not chosen the hosts."""
        for host, procs in deal(self._plan.hosts, self._plan.procs):
            ranks = range(self._plan.ranks(procs[0])[0], self._plan.ranks(procs[-1])[-1] + 1)
            yield host.name, ranks, [p for p in self._processes if p.ranks and p.ranks[0] in ranks]

    def close(self) -> None:
        for process in self._processes:
            self._close(process)
        if self._listener is not None:
            self._listener.close()
        if self._ends is not None:
            self._ends.close()

    def _connected(self, fd: int, pid: int) -> None:
        self._watch(JobProcess(fd, range(0), pid, spawned=False))

    def _watch(self, process: JobProcess) -> JobProcess:
        os.set_blocking(process.fd, False)
        self._processes.append(process)
        if self._ends is not None:
            self._ends.register(process.fd, select.EPOLLRDHUP | select.EPOLLET)
        self._selector.register(process.fd, selectors.EVENT_READ, lambda fd: self._read(process))
        return process

    def _read_all(self, process: JobProcess) -> None:
        while process.open and self._read(process):
            pass

    def _read(self, process: JobProcess) -> bool:
        """Read once; False when there is nothing to read, now or ever again."""
        try:
            data = os.read(process.fd, _READ)
        except BlockingIOError:
            return False
        except OSError:  # reset, or its host is gone
            data = b""
        if not data:
            first = self._first_to_end(process)
            if first is not process:
                self._read_all(first)  # so that its failure comes before that of this one
            self._close(process)
            # A child is judged by its exit status, in `ended`.
            if not (process.spawned or process.has_outcome or self._any_failed()):
                self._fail(process, None)
            return False
        for message in process.receiver.feed(data):
            self._take(process, message)
        return True

    def _first_to_end(self, process: JobProcess) -> JobProcess:
        """The open process whose connection ended first: `process` or an earlier one."""
        if self._ends is None:
            return process
        self._ended += [fd for fd, _ in self._ends.poll(0)]
        still_open = {other.fd: other for other in self._processes if other.open}
        return next((still_open[fd] for fd in self._ended if fd in still_open), process)

    def _take(self, process: JobProcess, message: dict[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "hello":
            ranks = message["ranks"]
            process.ranks = range(ranks[0], ranks[-1] + 1)
            process.progress = {rank: Progress(rank) for rank in ranks}
            process.host, process.own_pid = message["host"], message["pid"]
        elif kind == "failed":
            process.failed = True
            failure = failure_from(message)
            self._on_failure(failure if failure.ranks else replace(failure, ranks=tuple(process.ranks)))
        elif kind == "meeting":
            process.meeting, process.meets_at = message["name"], message["where"]
            process.met.add(message["name"])
            process.meets_for = message["limit"]
            process.meets_until = time.monotonic() + process.meets_for
            self._look_for_absent()
        elif kind == "done":
            process.done, process.done_at, process.ended_at = True, time.monotonic(), message["where"]
            self._look_for_absent()
        elif kind == "loaded":
            self.on_loaded(message["modules"], message["kernels"])
        elif kind == "saves":
            process.saves = True
        elif kind == "preempted":
            process.preempted = message["step"]
        elif kind == "ended":
            process.agent_reported = True
            self._judge(process, message["status"])
            if not process.failed:
                self._command(process, leave=True)
        elif kind == "orphaned":
            process.agent_reported = True
            if not (process.has_outcome or self._any_failed()):
                process.failed = True
                self._on_failure(blame.orphaned(process.ranks))
        elif kind == "heartbeat":
            progress = process.progress_of(message["rank"])
            told = {name: message[name] for name in ("last", "waited", "turn", "waits_for", "memory")}
            progress.update(tuple(message["counters"]), **told)
        elif kind == "logged":
            process.progress_of(message["rank"]).logged = message["step"], message["numbers"]

    def _look_for_absent(self) -> None:
        """Fail the job if a process has ended that others wait for in a meeting: they would wait for ever."""
        done = [process for process in self._processes if process.done]
        if not done or self._any_failed():
            return
        waiting = [process for process in self._processes if process.meeting and not process.has_outcome]
        for process in done if waiting else ():
            left = [one for one in waiting if one.meeting not in process.met]
            if left:
                process.failed = True
                places = {rank: one.meets_at for one in left for rank in one.ranks}
                self._on_failure(blame.absent(process.ranks, process.ended_at, places))
                return

    def late(self, now: float) -> Stall | None:
        """The stall of processes that have not come to a meeting in time."""
        for one in self._processes:
            if one.meeting and not one.has_outcome and now >= one.meets_until:
                absent = [p for p in self._processes if one.meeting not in p.met and not p.has_outcome]
                if absent:
                    ranks = tuple(rank for process in absent for rank in process.ranks)
                    where = f"rank {one.ranks[0]} has waited {one.meets_for:g} s for all at {one.meets_at}"
                    return Stall(ranks, f"did not come to meet the others: {where}")
        return None

    def _judge(self, process: JobProcess, status: int) -> None:
        process.status = status
        if not process.has_outcome or (process.done and status != 0):
            self._fail(process, status)

    def _any_failed(self) -> bool:
        """Whether a process has failed. mpiexec itself ends the others then, which is no further failure."""
        return any(process.failed for process in self._processes)

    def _fail(self, process: JobProcess, status: int | None) -> None:
        process.failed = True
        crash = process.receiver.crash_text
        behind = min(
            (process.progress_of(rank) for rank in process.ranks), key=lambda p: p.steps, default=None
        )
        self._on_failure(blame.ended_silently(process.ranks, status, crash, behind))

    def _close(self, process: JobProcess) -> None:
        if process.open:
            process.open = False
            self._selector.unregister(process.fd)
            os.close(process.fd)


def _no_agent_reported(processes: Iterable[JobProcess]) -> bool:
    """Whether no agent has reported the end of its process, among those whose script was not finished."""
    unfinished = [process for process in processes if not process.done]
    return bool(unfinished) and not any(process.agent_reported for process in unfinished)
