"""`torch.multiprocessing`: the standard library's, and `spawn`, whose processes are the ranks of one job.

Processes are started anew (`spawn`), never forked: a fork copies the state of MPI, of CUDA and of
BLAS's threads, none of which survives it.
"""

from __future__ import annotations

import contextlib
import multiprocessing as _mp
import secrets
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import (
    Array,
    AuthenticationError,
    Barrier,
    BoundedSemaphore,
    BufferTooShort,
    Condition,
    Event,
    JoinableQueue,
    Lock,
    Manager,
    Pipe,
    Pool,
    Process,
    ProcessError,
    Queue,
    RawArray,
    RawValue,
    RLock,
    Semaphore,
    SimpleQueue,
    TimeoutError,
    Value,
    active_children,
    allow_connection_pickling,
    connection,
    cpu_count,
    current_process,
    freeze_support,
    get_all_start_methods,
    get_context,
    get_logger,
    get_start_method,
    log_to_stderr,
    parent_process,
    set_executable,
    set_forkserver_preload,
    set_start_method,
)
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from .core.environment import Launch
from .distributed.ranks import host

__path__: list[str] = []
_GRACE_SECONDS = 5.0


class ProcessException(Exception):
    """A process of `spawn` failed; `error_index` is its number and `error_pid` the system's."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = pid


class ProcessRaisedException(ProcessException):
    """A process of `spawn` raised; the message holds its traceback."""


class ProcessExitedException(ProcessException):
    """A process of `spawn` ended by itself or by a signal."""

    def __init__(
        self, msg: str, error_index: int, pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, pid)
        self.exit_code = exit_code
        self.signal_name = signal_name


class ProcessContext:
    """The processes that `spawn` started."""

    def __init__(self, processes: Sequence[BaseProcess], reports: Sequence[Any]) -> None:
        self.processes = list(processes)
        self._reports = list(reports)

    def pids(self) -> list[int]:
        """The system's numbers of the processes."""
        return [process.pid or 0 for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float = _GRACE_SECONDS) -> bool:
        """Wait until all processes have ended, and return True; False when `timeout` seconds passed first.

        When one fails the others are terminated, after `grace_period` seconds killed, and
        ProcessRaisedException or ProcessExitedException says which one it was and why.
        """
        running = {
            process.sentinel: i for i, process in enumerate(self.processes) if process.exitcode is None
        }
        if running:
            ended = connection.wait(running.keys(), timeout)
            if not ended:
                return False
        codes = self._codes()
        failed = [i for i, code in enumerate(codes) if code not in (None, 0)]
        if failed:
            told = self._collect(grace_period)
            self.stop(grace_period)
            first = min(told, key=lambda i: told[i][0], default=failed[0])
            raise self._error(first, told[first][1] if first in told else None)
        if None in codes:
            return False
        for process in self.processes:
            process.join()
        return True

    def _codes(self) -> list[int | None]:
        """How each has ended, or None. A decision asks once: a process may end between two questions."""
        return [process.exitcode for process in self.processes]

    def _collect(self, patience: float) -> dict[int, tuple[bool, str]]:
        """What the failed processes report: (because of another one, the traceback), by number.

        A rank that fails because another one did may be the first to end: its cause is waited for.
        """
        deadline = time.monotonic() + patience
        told: dict[int, tuple[bool, str]] = {}
        while True:
            codes = self._codes()
            failed = [i for i, code in enumerate(codes) if code not in (None, 0)]
            for i in failed:
                if i not in told and self._reports[i].poll():
                    with contextlib.suppress(EOFError):  # it ended without a word
                        told[i] = self._reports[i].recv()
            running = [self.processes[i].sentinel for i, code in enumerate(codes) if code is None]
            left = deadline - time.monotonic()
            caused = len(told) == len(failed) and all(secondary for secondary, _ in told.values())
            if not caused or not running or left <= 0:
                return told
            connection.wait(running, left)

    def stop(self, grace_period: float = _GRACE_SECONDS) -> None:
        """End the processes that still run: they are terminated, after `grace_period` seconds killed."""
        for process in self.processes:
            if process.exitcode is None:
                process.terminate()
        for process in self.processes:
            process.join(grace_period)
            if process.exitcode is None:
                process.kill()
                process.join()

    def _error(self, index: int, report: str | None) -> ProcessException:
        process = self.processes[index]
        pid, code = process.pid or 0, process.exitcode or 0
        if report is not None:
            text = f"\n\n-- Process {index} terminated with the following error:\n{report}"
            return ProcessRaisedException(text, index, pid)
        if code < 0:
            name = signal.Signals(-code).name
            return ProcessExitedException(
                f"process {index} terminated with signal {name}", index, pid, code, name
            )
        return ProcessExitedException(f"process {index} terminated with exit code {code}", index, pid, code)


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` new processes, which are the ranks of one job on this host.

    In each of them `init_process_group` meets the others, as under ddprun. With `join` wait for
    all, and raise what the first that failed says; without, return a ProcessContext. Processes that are asked to be
    forked are started anew too, with a warning: they would share the state of BLAS, MPI and CUDA.
    """
    if start_method == "fork":
        warnings.warn(
            "start_method='fork': a fork would share the state of BLAS, MPI and CUDA; the processes are started anew "
            f"('spawn'), and import {getattr(fn, '__module__', 'the program')}",
            stacklevel=2,
        )
        start_method = "spawn"
    context = _mp.get_context(start_method)
    job = secrets.token_hex(6)
    processes, reports = [], []
    for i in range(nprocs):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(  # pyright: ignore[reportAttributeAccessIssue]
            target=_run_rank, args=(fn, i, tuple(args), nprocs, job, sending), daemon=daemon
        )
        process.start()
        sending.close()
        processes.append(process)
        reports.append(receiving)
    started = ProcessContext(processes, reports)
    if not join:
        return started
    try:
        while not started.join():
            pass
    except BaseException:
        started.stop(_GRACE_SECONDS)
        raise
    return None


start_processes = spawn


def _run_rank(
    fn: Callable[..., Any], i: int, args: tuple[Any, ...], nprocs: int, job: str, report: Any
) -> None:
    """One process of `spawn`: its rank, and a report when it fails."""
    from .core.errors import DistributedError

    try:
        host.run_ranks(lambda rank: fn(i, *args), Launch(nprocs, nprocs, i, job))
    except KeyboardInterrupt:
        sys.exit(1)  # the parent was interrupted too, and says so
    except Exception as error:
        with contextlib.suppress(BrokenPipeError):  # the parent is gone
            report.send((isinstance(error, DistributedError), traceback.format_exc()))
        sys.exit(1)


def set_sharing_strategy(new_strategy: str) -> None:
    """Checked, and without effect: tensors in shared memory travel by descriptor, others by value."""
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(f"unknown sharing strategy {new_strategy!r}")


def get_sharing_strategy() -> str:
    """'file_descriptor'."""
    return "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """PyTorch's names, all of which mean the same here."""
    return {"file_system", "file_descriptor"}


class _Spawn(ModuleType):
    """This module, which programs import as `torch.multiprocessing.spawn` too; that name stays the function's."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "spawn" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Spawn

__all__ = [
    "Array", "AuthenticationError", "Barrier", "BoundedSemaphore", "BufferTooShort", "Condition", "Event",
    "JoinableQueue", "Lock", "Manager", "Pipe", "Pool", "Process", "ProcessContext", "ProcessError",
    "ProcessException", "ProcessExitedException", "ProcessRaisedException", "Queue", "RLock", "RawArray",
    "RawValue", "Semaphore", "SimpleQueue", "TimeoutError", "Value", "active_children", "allow_connection_pickling",
    "cpu_count", "current_process", "freeze_support", "get_all_sharing_strategies", "get_all_start_methods",
    "get_context", "get_logger", "get_sharing_strategy", "get_start_method", "log_to_stderr", "parent_process",
    "set_executable", "set_forkserver_preload", "set_sharing_strategy", "set_start_method", "spawn",
    "start_processes",
]  # fmt: skip
