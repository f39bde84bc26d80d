"""Record what the ranks of this process do and when, in files that `timeline` puts together.

    with trace.recording("run"):        # before init_process_group, on every rank
        train()

or `ddprun --trace run …` for a whole program. Then `ddprun trace run` prints where the time
went and writes a timeline for ui.perfetto.dev. Recorded are the loader, forward, backward, each
bucket (ready, on its way, waited for), other collectives, the optimizer, what the program
labels with `profiler.record_function`, and each second the memory
that the process takes, of GPUs too. A span costs some microseconds while recording, and
nothing otherwise.
"""

from __future__ import annotations

import atexit
import json
import os
import statistics
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...autograd.graph import RemovableHandle
from ...core import environment, spans
from ...core.environment import Launch
from ...core.tensor import Tensor
from ...optim.optimizer import Optimizer, register_optimizer_step_post_hook
from ..communicator.communicator import Communicator, Port
from ..protocol import progress
from ..transports.base import COMPLETED, Pending
from ..transports.calls import Call

__all__ = ["recording", "start", "stop"]

_PREFIX = "timeline"
# A killed process loses what it did last; writing costs too much for every span.
_WRITE_EVERY_S = 1.0
# Calls that took no longer did nothing but look.
_GLANCE_S = 20e-6


class _Recording(spans.Recorder):
    """Spans of this process, written to a file line by line."""

    def __init__(self, folder: Path, launch: Launch) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self.clock: float | None = None
        self._first_rank = launch.ranks.start
        self._pid = os.getpid()
        self._written = spans.now()
        self._lock = threading.Lock()
        self._optimizers: dict[int, tuple[int | None, weakref.ref[Optimizer]]] = {}
        self._file = (folder / f"{_PREFIX}-{launch.proc}.jsonl").open("w")
        self._line({"job": launch.job, "attempt": environment.restart_count(), "procs": launch.procs,
                    "host": _machine(), "name": os.uname().nodename})  # fmt: skip

    def _line(self, content: Any) -> None:
        self._file.write(json.dumps(content) + "\n")

    def set_clock(self, offset: float) -> None:
        """What this process's clock shows when rank 0's shows 0."""
        self.clock = offset
        with self._lock:
            self._line({"clock": offset})

    def write(self) -> None:
        """Put what was recorded so far into the file."""
        if os.getpid() != self._pid:  # a forked child must not write what is its parent's
            return
        with self._lock:
            ended, self.spans = self.spans, []
            for span in ended:
                self._line([self._first_rank if span.rank is None else span.rank, *span[1:]])
            resident, gpu = progress.memory()
            self._line({"memory": resident, "gpu": gpu, "at": spans.now()})
            for rank, part in self._parts().items():
                rank = self._first_rank if rank is None else rank
                self._line({"rank": rank, "parts": part, "at": spans.now()})
            self._file.flush()
            self._written = spans.now()

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer of this rank has made a step."""
        self._optimizers[id(optimizer)] = spans.caller(), weakref.ref(optimizer)
        self.write_if_due()

    def _parts(self) -> dict[int | None, list[int]]:
        """By rank: the bytes of parameters, of gradients, and of the state of optimizers, whose tensors they share."""
        found: dict[int | None, list[int]] = {}
        for rank, known in self._optimizers.values():
            if (optimizer := known()) is None:
                continue
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            gradients = [p.grad for p in parameters if p.grad is not None]
            state = [
                t for p in parameters for t in optimizer.state.get(p, {}).values() if isinstance(t, Tensor)
            ]
            part = found.setdefault(rank, [0, 0, 0])
            for i, tensors in enumerate((parameters, gradients, state)):
                part[i] += sum(_nbytes(tensor) for tensor in tensors)
        return found

    def write_if_due(self) -> None:
        if spans.now() - self._written > _WRITE_EVERY_S:
            self.write()

    def close(self) -> None:
        self.write()
        if os.getpid() == self._pid:
            if os.fstat(self._file.fileno()).st_nlink == 0:
                lost = f"the recording of rank {self._first_rank} is lost: its file in {self.folder} was deleted meanwhile"
                warnings.warn(lost, RuntimeWarning, stacklevel=2)
            self._file.close()


def _nbytes(tensor: Tensor) -> int:
    """Of what this rank has of it."""
    here = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # pyright: ignore[reportAttributeAccessIssue]
    return here.nbytes


class _Current:
    """The one recording of this process, and who asked for it."""

    recording: _Recording | None = None
    users = 0
    hook: RemovableHandle


_lock = threading.Lock()


def start(folder: str | os.PathLike[str], launch: Launch | None = None) -> None:
    """Record from now on, into files of `folder`. Call it on all ranks, before `init_process_group`.

    Collectives of groups that were there before are not recorded; everything else is. Ranks that neither a launcher nor
    the environment has numbered record to folders of their own.
    """
    with _lock:
        if _Current.recording is not None:
            if _Current.recording.folder != Path(folder).resolve():
                raise RuntimeError(
                    f"trace.start: this process already records to {_Current.recording.folder}"
                )
            _Current.users += 1  # several ranks of one process
            return
        recording = _Current.recording = _Recording(Path(folder), launch or _expected())
        _Current.users = 1
        _Current.hook = register_optimizer_step_post_hook(lambda optimizer, *_: recording.stepped(optimizer))
        spans.attach(recording)


def _expected() -> Launch:
    """Which process this will be, as far as the environment says, whether or not its ranks have met."""
    told = environment.rendezvous() if spans.caller() is None else {}  # else this process hosts several ranks
    if environment.launched() is None and {"RANK", "WORLD_SIZE"} <= told.keys():
        ranks = int(told["WORLD_SIZE"])
        return Launch(ranks, ranks, int(told["RANK"]))
    return environment.launch()


def start_if_asked(launch: Launch) -> None:
    """Begin the recording that `ddprun --trace` asks for, once in a process."""
    folder = environment.trace_folder()
    if folder is not None and _Current.recording is None:
        start(folder, launch)
        atexit.register(stop)


def stop() -> None:
    """End a recording. The files are complete when every caller of `start` has called this."""
    with _lock:
        if _Current.recording is None:
            return
        _Current.users -= 1
        if _Current.users > 0:
            return
        spans.detach(_Current.recording)
        _Current.hook.remove()
        _Current.recording.close()
        _Current.recording = None


@contextmanager
def recording(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Record what happens within."""
    start(folder)
    try:
        yield
    finally:
        stop()


def align(c: Communicator) -> None:
    """Find out how far this process's clock is from that of rank 0. Collective; does nothing without a recording."""
    recording = _Current.recording
    if recording is not None and recording.clock is None:
        recording.set_clock(clock_offset(c))


def clock_offset(c: Communicator, clock: Any = spans.now, rounds: int = 15) -> float:
    """The seconds by which this rank's clock is ahead of rank 0's: the median over moments just after a barrier."""
    ahead = []
    for _ in range(rounds):
        c.barrier("clocks")
        rows = c.all_gather(np.array(clock(), np.float64), "clocks")
        ahead.append(float(rows[c.rank] - rows[0]))
    return statistics.median(ahead)


def watched(port: Port) -> Port:
    """`port`, which also records how long its collectives take."""
    return _WatchedPort(port)


class _WatchedPort:
    def __init__(self, port: Port) -> None:
        self._port = port
        self.transport, self.send, self.receive = port.transport, port.send, port.receive

    def submit(self, call: Call) -> Pending:
        if not spans.recorders:
            return self._port.submit(call)
        began = spans.now()
        pending = _WatchedPending(self._port.submit(call), call, began)
        pending.held("begins", began)
        if pending.inner is COMPLETED:
            pending.complete()
        return pending


class _WatchedPending(Pending):
    """A collective, with the times at which the program was held up by it."""

    __slots__ = ("_carried", "began", "call", "inner")

    def __init__(self, inner: Pending, call: Call, began: float) -> None:
        self.inner: Pending | None = inner
        self._carried: tuple[float, float] | None = None
        self.call = call
        self.began = began

    @property
    def external(self) -> bool:
        return self.inner is not None and self.inner.external

    @property
    def carried(self) -> tuple[float, float] | None:
        return self._carried

    def poll(self) -> bool:
        if self.inner is None:
            return True
        began = spans.now()
        done = self.inner.poll()
        self.held("advances", began)
        if done:
            self.complete()
        return done

    def wait(self) -> None:
        if self.inner is None:
            return
        began = spans.now()
        self.inner.wait()
        self.held("is waited for", began)
        self.complete()

    def held(self, how: str, began: float) -> None:
        """The program has spent the time since `began` here."""
        if spans.now() - began > _GLANCE_S:
            spans.tell("waiting", f"{self.call.signature.fields[0]} {how}", began)

    def complete(self) -> None:
        """The result is there."""
        assert self.inner is not None
        self._carried, self.inner = self.inner.carried, None
        began, ended = self._carried or (self.began, spans.now())
        name, dtype, shape, label = self.call.signature.fields[:4]
        span = spans.Span(
            spans.caller(), spans.COMMUNICATION, "communication", name, began, ended,
            {"bytes": self.call.array.nbytes, "dtype": dtype, "shape": shape, "what": label},
        )  # fmt: skip
        for recorder in spans.recorders:
            recorder.add(span)


def _machine() -> str:
    """An identifier of the machine, and so of its clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
