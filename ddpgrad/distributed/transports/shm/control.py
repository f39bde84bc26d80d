"""The control page: processes of one host share it, and see each other's flags, signatures and ends there.

Every process owns a line of counters that only it writes. Each collective has a number;
a process sets ARRIVE to the number when its contribution is in place, and DONE when it
needs no other's contribution any more. STAGE counts steps within one collective.

A ring of records holds what each rank called under a number, so that several collectives
can be under way; before an entry is used again, all processes are DONE with its last use.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ....core.environment import Launch
from ....core.errors import DistributedError
from ...protocol import guard
from ...protocol.guard import Signature
from ...protocol.progress import waits
from ..base import Patience
from ..process_monitor import ProcessMonitor, pid_namespace
from . import segments

ARRIVE, DONE, STAGE = 0, 1, 2
_STATE, _PID, _NAMESPACE, _FAILED_RANK, _REASON_LENGTH = 3, 4, 5, 6, 7

# states of a process; _SECONDARY: it failed because another did
_ABSENT, _RUNNING, _FINISHED, _FAILED, _SECONDARY = range(5)

DEPTH = 32
"""How many collectives may be under way at once."""

# Sizes in bytes. Two cache lines for a process: processors fetch lines in pairs.
_LINE = 128
_REASON = 512
_RECORD = 512
_RECORD_HEAD = 24

_CHECK_SECONDS = 0.05

# x86 shows a core's stores to others in program order; elsewhere a lock's barriers see to that.
_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
_order_lock = threading.Lock()


def _fence() -> None:
    """Keep memory accesses before and after apart (two lock cycles: none passes both)."""
    for _ in range(2):
        _order_lock.acquire()
        _order_lock.release()


def order() -> None:
    """Keep what this process wrote or read before apart from what follows, as other processes see it."""
    if not _ORDERED:
        _fence()


class Memory(NamedTuple):
    """Where the parts of a control page lie, for compiled code: addresses, and distances in bytes."""

    page: int
    line: int  # from one process's counters to the next
    arrived: int  # from there to the counter ARRIVE
    done: int
    records: int
    record: int
    core_each: bool  # every process has a core of its own


class Control:
    """The control page of one job on one host, and `extra` bytes for the transport's own use.

    sparse: further bytes behind those, which take memory only once they are used: reserve them before, with `take`
    """

    def __init__(self, launch: Launch, job: str, extra: int, timeout: float, sparse: int = 0) -> None:
        self.launch = launch
        procs = launch.procs
        self._reasons = procs * _LINE
        self._records = self._reasons + procs * _REASON
        self.extra = self.bytes_needed(launch)
        self.sparse = _pages(self.extra + extra)
        self._core_each = launch.procs <= _cores()
        self.map = self._join(job, self.extra + extra, self.sparse + sparse, timeout)
        self._bytes = memoryview(self.map)
        self._words = self._bytes.cast("Q")
        line = _LINE // 8
        self._mine = launch.proc * line
        self._others = [proc for proc in range(procs) if proc != launch.proc]
        self._columns = [[proc * line + column for proc in self._others] for column in range(3)]
        # Spinning helps only where every process has a core of its own.
        self._spins = 100 if self._core_each else 20
        self._next_check = 0.0
        self.meanwhile: Callable[[], None] = _nothing  # what is done while this process waits
        self._meet(job, timeout)

    @staticmethod
    def bytes_needed(launch: Launch) -> int:
        """What the page takes, without `extra` and `sparse`."""
        records = launch.procs * (_LINE + _REASON) + launch.world_size * DEPTH * _RECORD
        return _pages(records)

    def _join(self, job: str, used: int, size: int, timeout: float):
        path = segments.path_of(job, "control")
        if self.launch.proc != 0:
            try:
                joined = segments.attach(path, size, patience=timeout)
            except segments.NothingThere as nothing:
                raise guard.not_come(self.launch, [0], timeout) from nothing
            self._file = segments.open_again(path)
            return joined
        made = segments.create(path, used, size - used)
        try:
            segments.reserve(path, 0, used)
            self._file = segments.open_again(path)
        except BaseException:
            segments.remove(path)
            raise
        return made

    def take(self, start: int, size: int) -> None:
        """Reserve a part of the sparse bytes now, instead of a bus error at the first write."""
        segments.take(self._file, start, size)

    def is_touched(self, start: int, size: int) -> bool:
        """Whether a part of the sparse bytes may have been written to."""
        return segments.is_touched(self._file, start, size)

    def has_finished(self, proc: int) -> bool:
        """Whether the ranks of process `proc` have ended well."""
        return self._word(proc, _STATE) == _FINISHED

    def _meet(self, job: str, timeout: float) -> None:
        """Wait until all processes have the page; then nobody needs its name."""
        words = self._words
        words[self._mine + _PID] = os.getpid()
        words[self._mine + _NAMESPACE] = pid_namespace()
        self.publish(_STATE, _RUNNING)
        deadline = time.monotonic() + timeout
        patience = Patience()
        try:
            while absent := [proc for proc in self._others if self._word(proc, _STATE) == _ABSENT]:
                if time.monotonic() > deadline:
                    raise guard.not_come(self.launch, absent, timeout)
                patience.pause()
        finally:
            if self.launch.proc == 0:
                segments.remove(segments.path_of(job, "control"))
        self._monitor = ProcessMonitor(
            {proc: self._word(proc, _PID) for proc in self._others if self._visible(proc)}
        )

    def _visible(self, proc: int) -> bool:
        # Containers may share memory and yet number their processes apart.
        return self._word(proc, _NAMESPACE) == pid_namespace()

    def memory(self) -> Memory:
        """Where this page's parts lie in this process."""
        page = np.frombuffer(self.map, np.uint8).__array_interface__["data"][0]
        return Memory(page, _LINE, ARRIVE * 8, DONE * 8, page + self._records, _RECORD, self._core_each)

    def _word(self, proc: int, column: int) -> int:
        return self._words[proc * (_LINE // 8) + column]

    def publish(self, column: int, value: int) -> None:
        """Set one of this process's own words, after all that it wrote before."""
        if not _ORDERED:
            _fence()
        self._words[self._mine + column] = value

    def record(self, rank: int, number: int, signature: Signature, place: int) -> None:
        """Write the signature of hosted `rank` under `number`, and where its contribution lies."""
        start = self._records + (rank * DEPTH + number % DEPTH) * _RECORD
        word = start // 8
        words = self._words
        words[word] = signature.digest
        words[word + 1] = place
        text = signature.encoded
        length = min(len(text), _RECORD - _RECORD_HEAD)
        words[word + 2] = length
        start += _RECORD_HEAD
        self._bytes[start : start + length] = text[:length]

    def agreed(self, number: int, digest: int) -> bool:
        """True when all ranks wrote `digest` under `number`."""
        words = self._words
        word = (self._records + number % DEPTH * _RECORD) // 8
        stride = DEPTH * _RECORD // 8
        for _ in range(self.launch.world_size):
            if words[word] != digest:
                return False
            word += stride
        return True

    def place(self, rank: int, number: int) -> int:
        """Where the contribution of `rank` to collective `number` lies."""
        return self._words[(self._records + (rank * DEPTH + number % DEPTH) * _RECORD) // 8 + 1]

    def places(self, number: int) -> tuple[int, ...]:
        """Where the contributions of all ranks to collective `number` lie."""
        start = (self._records + number % DEPTH * _RECORD) // 8 + 1
        stride = DEPTH * _RECORD // 8
        return tuple(self._words[start : start + self.launch.world_size * stride : stride])

    def fields(self, rank: int, number: int) -> Sequence[str]:
        """The words that `rank` wrote under `number` (none for number 0)."""
        if number == 0:
            return ()
        start = self._records + (rank * DEPTH + number % DEPTH) * _RECORD
        length = self._words[start // 8 + 2]
        return guard.decode(bytes(self._bytes[start + _RECORD_HEAD : start + _RECORD_HEAD + length]))

    def mismatch(self, number: int) -> DistributedError:
        """The error for collective `number`, on which the ranks do not agree."""
        stride = DEPTH * _RECORD // 8
        word = (self._records + number % DEPTH * _RECORD) // 8
        records = {
            self.launch.world_rank(rank): (self._words[word + rank * stride], self.fields(rank, number))
            for rank in range(self.launch.world_size)
        }
        return guard.mismatch(records, number)

    def reached(self, column: int, target: int) -> bool:
        """True when every other process's counter is at `target`."""
        words = self._words
        for index in self._columns[column]:
            if words[index] < target:
                return False
        if not _ORDERED:
            _fence()
        return True

    def least_done(self) -> int:
        """The number up to which no process, this one included, needs any record."""
        return min(self._word(proc, DONE) for proc in range(self.launch.procs))

    def wait(self, column: int, target: int, number: int, timeout: float) -> None:
        """Return when every other process's counter is at `target`, in collective `number`.

        Raises RankFailedError as soon as one that is missing has died, failed or finished,
        and StallError after `timeout` seconds.
        """
        words = self._words
        for index in self._columns[column]:
            if words[index] >= target:
                continue
            for _ in range(self._spins):
                if words[index] >= target:
                    break
            else:
                self._wait_long(index, column, target, number, timeout)
        if not _ORDERED:
            _fence()

    def _wait_long(self, index: int, column: int, target: int, number: int, timeout: float) -> None:
        began = time.monotonic()
        waits.begin(began)
        patience = Patience(spins=0, own_core=self._core_each)
        while self._words[index] < target:
            patience.pause()
            self.meanwhile()
            self.check(column, target, number, began, timeout)
        waits.end()

    def check(self, column: int, target: int, number: int, began: float, timeout: float) -> None:
        """Look, now and then, whether those that are missing can still come; see `wait`."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_SECONDS
        if self._word(self.launch.proc, _STATE) in (_FAILED, _SECONDARY):
            raise DistributedError("a rank of this process has failed")
        dead = self._monitor.dead()
        missing = [proc for proc in self._others if self._word(proc, column) < target]
        causes = []
        for proc in missing:
            state = self._word(proc, _STATE)
            # What it wrote before it ended may have become visible just now.
            if (state != _RUNNING or proc in dead) and self._word(proc, column) < target:
                causes.append(self._cause(proc, state))
        if causes:
            _, ranks, what = min(causes)
            raise guard.rank_failed(ranks, what, self._waiting(number))
        if missing and now - began > timeout:
            last = {}
            for proc in missing:
                last |= self._calls(proc, self._word(proc, ARRIVE))
            raise guard.stalled(last, self._waiting(number), timeout)

    def _cause(self, proc: int, state: int) -> tuple[int, list[int], str]:
        """How far this end is from the first cause (0: it is that), which ranks, what they did."""
        if state in (_FAILED, _SECONDARY):
            start = self._reasons + proc * _REASON
            length = self._word(proc, _REASON_LENGTH)
            reason = bytes(self._bytes[start : start + length]).decode("utf-8", "replace")
            return (0 if state == _FAILED else 3), [self._word(proc, _FAILED_RANK)], reason
        if state == _FINISHED:
            return 2, self._ranks(proc), guard.ENDED_WELL
        what = f"(process {self._word(proc, _PID)}) died without a word: it was killed, or crashed"
        return 1, self._ranks(proc), what

    def _ranks(self, proc: int) -> list[int]:
        """The ranks that `proc` hosts, as messages call them."""
        return [self.launch.world_rank(rank) for rank in self.launch.block(proc)]

    def _calls(self, proc: int, number: int) -> Mapping[int, Sequence[str]]:
        """The calls of the ranks of `proc` under `number`, in words."""
        return {self.launch.world_rank(rank): self.fields(rank, number) for rank in self.launch.block(proc)}

    def _waiting(self, number: int) -> Mapping[int, Sequence[str]]:
        """The calls of the ranks that arrived at collective `number`."""
        arrived = [self.launch.proc, *(p for p in self._others if self._word(p, ARRIVE) >= number)]
        return {rank: fields for proc in arrived for rank, fields in self._calls(proc, number).items()}

    def fail(self, rank: int, reason: str, secondary: bool) -> None:
        """Mark this process as failed; the first mark stands."""
        if self._word(self.launch.proc, _STATE) != _RUNNING:
            return
        text = reason.encode("utf-8", "replace")[:_REASON]
        start = self._reasons + self.launch.proc * _REASON
        self._bytes[start : start + len(text)] = text
        self._words[self._mine + _REASON_LENGTH] = len(text)
        self._words[self._mine + _FAILED_RANK] = rank
        self.publish(_STATE, _SECONDARY if secondary else _FAILED)

    def check_alive(
        self, procs: Sequence[int], waiting: Mapping[int, Sequence[str]], all_needed: bool
    ) -> None:
        """Raise RankFailedError if, of `procs`, one (or all, unless `all_needed`) can bring nothing any more."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_SECONDS
        dead = self._monitor.dead()
        states = {proc: self._word(proc, _STATE) for proc in procs}
        causes = [self._cause(p, state) for p, state in states.items() if state != _RUNNING or p in dead]
        if causes and (all_needed or len(causes) == len(procs)):
            _, ranks, what = min(causes)
            raise guard.rank_failed(ranks, what, waiting)

    def finish(self) -> None:
        """Mark this process as finished, unless it failed. No `wait` may follow."""
        self._monitor.close()
        os.close(self._file)
        if self._word(self.launch.proc, _STATE) == _RUNNING:
            self.publish(_STATE, _FINISHED)


def _nothing() -> None:
    pass


def _pages(size: int) -> int:
    return -(-size // 4096) * 4096


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
