"""`torch.distributed.elastic.multiprocessing`: a function or a command in several processes, each with an environment of its own."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path
from typing import Any

from ddpgrad import multiprocessing
from ddpgrad.compat.torchrun_errors import ProcessFailure, record
from ddpgrad.core import environment

from .as_torch import SHIMS

_SECONDS_BETWEEN_LOOKS = 0.05
_SECONDS_TO_END = 5.0  # of a rank that has failed, and has ended the others by SIGTERM before itself


class SignalException(Exception):
    """A process that started others was asked to end by the signal `sigval`."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


class Std(IntFlag):
    """Streams of a process."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """Of "3" the streams; of "0:1,1:2" those by local rank. ValueError for anything else."""
        if re.fullmatch("[0-3]", vm):
            return cls(int(vm))
        if not re.fullmatch(r"(\d:[0-3],)*(\d:[0-3])", vm):
            raise ValueError(
                f"{vm} does not match: a number from 0 to 3, or such for local ranks, as in 0:1,1:3"
            )
        return {int(rank): cls(int(value)) for rank, value in (one.split(":") for one in vm.split(","))}


def to_map(val_or_map: Std | Mapping[int, Std], local_world_size: int) -> dict[int, Std]:
    """The streams by local rank, of a value for all or of one for some."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


@dataclass
class LogsDest:
    """Files by local rank: of streams that go there, of those that are shown as well, and of errors."""

    stdouts: dict[int, str] = field(default_factory=dict[int, str])
    stderrs: dict[int, str] = field(default_factory=dict[int, str])
    tee_stdouts: dict[int, str] = field(default_factory=dict[int, str])
    tee_stderrs: dict[int, str] = field(default_factory=dict[int, str])
    error_files: dict[int, str] = field(default_factory=dict[int, str])


class LogsSpecs(ABC):
    """Which streams go to files, and which are shown as well; of those not in `local_ranks_filter` none is shown."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        self._root_log_dir, self._redirects, self._tee = log_dir, redirects, tee
        self._local_ranks_filter = local_ranks_filter

    @abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The files of processes with these environments."""

    @property
    @abstractmethod
    def root_log_dir(self) -> str:
        """The folder of all files."""


class DefaultLogsSpecs(LogsSpecs):
    """Files in `log_dir/RUN_…/attempt_N/RANK/`: stdout.log, stderr.log, error.json. log_dir: by default a folder
    that is there until this process ends.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        if not log_dir:
            log_dir = tempfile.mkdtemp(prefix="torchelastic_")
            atexit.register(shutil.rmtree, log_dir, ignore_errors=True)
        elif log_dir != os.devnull:
            if os.path.isfile(log_dir):
                raise NotADirectoryError(f"log_dir: {log_dir} is a file")
            os.makedirs(log_dir, exist_ok=True)
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._run: str | None = None

    @property
    def root_log_dir(self) -> str:
        return str(self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        ranks = sorted(envs)
        first = envs[ranks[0]] if ranks else {}
        folder = self._attempt(
            first.get("TORCHELASTIC_RUN_ID", "run"), first.get("TORCHELASTIC_RESTART_COUNT", "0")
        )
        files, tees = to_map(self._redirects, len(ranks)), to_map(self._tee, len(ranks))
        if self._local_ranks_filter:
            files = {r: files[r] if r in self._local_ranks_filter else Std.ALL for r in ranks}
            tees = {r: tees[r] if r in self._local_ranks_filter else Std.NONE for r in ranks}

        def named(name: str, which: Mapping[int, Std], std: Std) -> dict[int, str]:
            places = {r: os.devnull if folder is None else str(folder / str(r) / name) for r in ranks}
            return {r: places[r] if which[r] & std else "" for r in ranks}

        both = {r: files[r] | tees[r] for r in ranks}
        for rank in ranks if folder else ():
            (folder / str(rank)).mkdir()  # type: ignore[operator]
        return LogsDest(
            named("stdout.log", both, Std.OUT),
            named("stderr.log", both, Std.ERR),
            {r: path for r, path in named("stdout.log", tees, Std.OUT).items() if path},
            {r: path for r, path in named("stderr.log", tees, Std.ERR).items() if path},
            named("error.json", dict.fromkeys(ranks, Std.ALL), Std.ALL),
        )

    def _attempt(self, run: str, attempt: str) -> Path | None:
        """An empty folder for the files of a start; None where nothing is kept."""
        if self.root_log_dir == os.devnull:
            return None
        self._run = self._run or tempfile.mkdtemp(prefix=f"{run}_", dir=self._root_log_dir)
        folder = Path(self._run) / f"attempt_{attempt}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


@dataclass
class RunProcsResult:
    """What became of processes, by local rank; return_values: of functions. stdouts, stderrs: files, or ""."""

    return_values: dict[int, Any] = field(default_factory=dict[int, Any])
    failures: dict[int, ProcessFailure] = field(default_factory=dict[int, ProcessFailure])
    stdouts: dict[int, str] = field(default_factory=dict[int, str])
    stderrs: dict[int, str] = field(default_factory=dict[int, str])

    def is_failed(self) -> bool:
        return len(self.failures) > 0


class PContext(ABC):
    """Processes that were started together."""

    def __init__(
        self,
        name: str,
        entrypoint: Any,
        args: Mapping[int, tuple[Any, ...]],
        envs: Mapping[int, Mapping[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: Mapping[int, str] | None = None,
    ) -> None:
        self.name, self.entrypoint, self.args = name, entrypoint, args
        self.nprocs = len(args)
        logs = self._logs = logs_specs.reify({rank: dict(env) for rank, env in envs.items()})
        self.stdouts, self.stderrs, self.error_files = logs.stdouts, logs.stderrs, logs.error_files
        self.envs = {
            r: {**env, "TORCHELASTIC_ERROR_FILE": logs.error_files.get(r, "")} for r, env in envs.items()
        }
        self._prefixes = log_line_prefixes or {}
        self._shown: list[tuple[threading.Thread, threading.Event]] = []
        self._values: dict[int, Any] = {}
        self._processes: dict[int, Any] = {}
        self._queues: dict[int, Any] = {}

    def start(self) -> None:
        """Start the processes, and show what is to be shown."""
        for rank in sorted(self.args):
            self._start_one(rank)
        for paths, stream in ((self._logs.tee_stdouts, sys.stdout), (self._logs.tee_stderrs, sys.stderr)):
            for rank, path in paths.items():
                prefix, over = self._prefixes.get(rank, f"[{self.name}{rank}]:"), threading.Event()
                thread = threading.Thread(target=_show, args=(path, prefix, stream, over), daemon=True)
                thread.start()
                self._shown.append((thread, over))

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """What became of the processes, when all have ended well or one has failed, which ends the others.

        None after `timeout` seconds, if it is not negative.
        """
        until, patient_until = time.monotonic() + timeout, None
        while True:
            self._look()
            codes = {rank: self._code(rank) for rank in sorted(self.args)}
            failed = {rank: code for rank, code in codes.items() if code}
            ending = False
            # Nobody here has sent SIGTERM: where nothing else ended ranks, one that has not ended yet is to blame.
            if {*failed.values()} == {-signal.SIGTERM}:
                patient_until = patient_until or time.monotonic() + _SECONDS_TO_END
                ending = time.monotonic() < patient_until
            if (failed and not ending) or None not in codes.values():
                self._look()
                pids = self.pids()
                self.close()
                failures = {
                    r: ProcessFailure(r, pids[r], code, self.error_files.get(r, ""))
                    for r, code in failed.items()
                }
                values = {} if failures else {r: self._values.get(r) for r in sorted(self.args)}
                return RunProcsResult(values, failures, self.stdouts, self.stderrs)
            if timeout >= 0 and time.monotonic() >= until:
                return None
            time.sleep(min(period, _SECONDS_BETWEEN_LOOKS))

    def close(self, death_sig: signal.Signals | None = None, timeout: float = 30) -> None:
        """End the processes that still run: by `death_sig` (SIGTERM), and after `timeout` seconds by SIGKILL."""
        for number, seconds in ((death_sig or signal.SIGTERM, timeout), (signal.SIGKILL, timeout)):
            running = [rank for rank in self.args if rank in self._processes and self._code(rank) is None]
            for rank in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pids()[rank], number)
            until = time.monotonic() + seconds
            while any(self._code(rank) is None for rank in running) and time.monotonic() < until:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        for thread, over in self._shown:
            over.set()
            thread.join()
        self._shown.clear()

    def pids(self) -> dict[int, int]:
        """The system's numbers of the processes, by local rank."""
        return {rank: process.pid for rank, process in self._processes.items()}

    @abstractmethod
    def _start_one(self, rank: int) -> None: ...

    @abstractmethod
    def _code(self, rank: int) -> int | None:
        """How the process has ended; None while it runs."""

    def _look(self) -> None:
        """Take what functions have returned."""
        for rank, queue in self._queues.items():
            while not queue.empty():
                self._values[rank] = queue.get()


class MultiprocessContext(PContext):
    """Processes that run a function, whose errors are in `error_files`."""

    def __init__(self, *args: Any, start_method: str = "spawn", **options: Any) -> None:
        super().__init__(*args, **options)
        self._context: Any = multiprocessing.get_context(start_method)

    def _start_one(self, rank: int) -> None:
        queue = self._queues[rank] = self._context.SimpleQueue()
        streams = self.stdouts.get(rank, ""), self.stderrs.get(rank, "")
        given = (self.entrypoint, self.args[rank], self.envs[rank], streams, queue)
        self._processes[rank] = self._context.Process(target=_call, args=given)
        self._processes[rank].start()

    def _code(self, rank: int) -> int | None:
        return self._processes[rank].exitcode


class SubprocessContext(PContext):
    """Processes that run a command."""

    def _start_one(self, rank: int) -> None:
        command = [self.entrypoint, *map(str, self.args[rank])]
        with contextlib.ExitStack() as files:
            out, err = (
                files.enter_context(open(path, "wb")) if path else None
                for path in (self.stdouts.get(rank, ""), self.stderrs.get(rank, ""))
            )
            env = {**environment.mapping(), **self.envs[rank]}
            if environment.as_torch():  # a Python script that is started finds the same torch as this program
                env["PYTHONPATH"] = os.pathsep.join([SHIMS, *filter(None, [env.get("PYTHONPATH")])])
            self._processes[rank] = subprocess.Popen(command, env=env, stdout=out, stderr=err)

    def _code(self, rank: int) -> int | None:
        return self._processes[rank].poll()


def start_processes(
    name: str,
    entrypoint: Callable[..., Any] | str,
    args: Mapping[int, tuple[Any, ...]],
    envs: Mapping[int, Mapping[str, str]],
    logs_specs: LogsSpecs,
    log_line_prefixes: Mapping[int, str] | None = None,
    start_method: str = "spawn",
) -> PContext:
    """Start `entrypoint`, a function or a command, with `args` and `envs` of each local rank.

    name: begins the lines that are shown of a process.
    """
    for what, given in (("args", args), ("envs", envs)):
        if set(given) != set(range(len(args))):
            raise RuntimeError(
                f"{what}, local rank mapping mismatch, expected: {set(range(len(args)))}, actual: {set(given)}"
            )
    common = (name, entrypoint, args, envs, logs_specs, log_line_prefixes)
    context = (
        SubprocessContext(*common)
        if isinstance(entrypoint, str)
        else MultiprocessContext(*common, start_method=start_method)
    )
    try:
        context.start()
    except BaseException:
        context.close()
        raise
    return context


def _call(
    function: Callable[..., Any],
    args: Sequence[Any],
    env: Mapping[str, str],
    streams: tuple[str, str],
    results: Any,
) -> None:
    """The life of a process that runs a function."""
    environment.export(**env)
    for number, path in zip((1, 2), streams, strict=True):
        if path:
            (sys.stdout, sys.stderr)[number - 1].flush()
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
    results.put(record(function)(*args))


def _show(path: str, prefix: str, stream: Any, over: threading.Event) -> None:
    """Copy the lines of a file that grows, until `over`."""
    while not os.path.exists(path) and not over.is_set():
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if not os.path.exists(path):
        return
    rest = ""
    with open(path, errors="replace") as file:
        while True:
            last = over.is_set()
            *lines, rest = (rest + file.read()).split("\n")
            for line in [*lines, *([rest] if last and rest else [])]:
                stream.write(f"{prefix}{line}\n")
            stream.flush()
            if last:
                return
            over.wait(_SECONDS_BETWEEN_LOOKS)
