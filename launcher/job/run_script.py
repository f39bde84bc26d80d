"""Runs the script in the ranks of this process, and reports the outcome to the launcher."""

from __future__ import annotations

import bdb
import contextlib
import faulthandler
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NoReturn

from ddpgrad.core import environment, rank_local
from ddpgrad.core.environment import Launch
from ddpgrad.core.errors import DistributedError, LaunchError
from ddpgrad.distributed.failure import exit_codes, heartbeat
from ddpgrad.distributed.failure.cause import exit_status, failure_by_exit, failure_of
from ddpgrad.distributed.failure.channel import Failure, Sender
from ddpgrad.distributed.ranks import host

from .. import preemption
from . import child_process, job_files


def run(sender: Sender | None, kind: str, target: str, arguments: Sequence[str]) -> int:
    """Run `target`, a 'script' or a 'module', in the ranks of this process; returns the exit code.

    `sender` leads to the launcher; without one, in a debug run, failures are printed here.
    """
    environment.export(DDPGRAD_PID=str(os.getpid()))
    try:
        launch = environment.launch()
    except LaunchError as error:
        _report(sender, Failure((), time.monotonic(), "exit code 1", str(error), f"{error}\n"))
        return 1
    if sender is not None:
        sender.hello(launch.ranks)
    if launch.mpi:
        # The parent is the agent here, or mpiexec, and not the launcher; this process must end with it, too.
        child_process.die_with_parent(os.getppid(), signal.SIGKILL)
    _prepare_streams(sender, launch)
    if sender is not None and launch.job is not None:
        job_files.prepare(launch.job, launch.proc)
    if sender is not None:
        heartbeat.start(sender)
    else:
        heartbeat.count_steps()
    preemption.prepare(sender)
    if sender is not None and environment.snapshot_memory() is not None and launch.proc == 0:
        from . import preloading  # here, as only jobs that may be started again need it

        preloading.report_after_first_step(sender)
    ended_at = ""
    if len(launch.ranks) == 1:
        _export_torchrun_variables(launch)
    try:
        if environment.as_torch():
            from .. import as_torch

            as_torch.install()
        with _reported_exits(sender, launch), _reported_threads(sender, launch):
            if kind == "module":
                ended_at = host.run_module(target, arguments, launch)
            else:
                ended_at = host.run_script(target, arguments, launch)
    except BaseException as error:
        status = exit_status(error)
        if status != 0:
            failure = failure_of(error, launch)
            if sender is None and isinstance(error, bdb.BdbQuit):
                _say_goodbye(failure)
            else:
                _report(sender, failure)
            if sender is None and not isinstance(error, KeyboardInterrupt):
                return exit_codes.OF_CAUSE[failure.cause]  # as the launcher would
            return status
    if preemption.saved_step is not None:
        if sender is not None:
            sender.preempted(preemption.saved_step)
        return exit_codes.PREEMPTED
    if sender is not None:
        sender.done(ended_at)
    return 0


@contextlib.contextmanager
def _reported_exits(sender: Sender | None, launch: Launch) -> Iterator[None]:
    """`os._exit` reports first: afterwards nobody knows which rank of the process called it, and where."""
    pid, exit_at_once = os.getpid(), os._exit
    finished = False

    def exit_and_report(status: int) -> NoReturn:
        if os.getpid() == pid and not finished:  # a child may be forked, and the function kept for later
            rank = _current_rank(launch)
            _report(sender, failure_by_exit(status, launch.ranks.start if rank is None else rank))
            if sender is None:
                status = exit_codes.RANK_FAILED
        exit_at_once(status)

    os._exit = exit_and_report
    try:
        yield
    finally:
        finished, os._exit = True, exit_at_once


@contextlib.contextmanager
def _reported_threads(sender: Sender | None, launch: Launch) -> Iterator[None]:
    """A collective that fails in a thread fails for its rank: the rank's other threads may end as if all were well."""
    before = threading.excepthook

    def report(args: threading.ExceptHookArgs) -> None:
        if isinstance(args.exc_value, DistributedError):
            _report(sender, failure_of(args.exc_value, launch))
        else:
            before(args)

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = before


def _report(sender: Sender | None, failure: Failure) -> None:
    if sender is not None and sender.forked:  # not the launcher's business, and nobody else's text
        print(failure.text, end="", file=sys.__stderr__)
        return
    if sender is not None:
        from ddpgrad.distributed import mpi_shared_memory

        mpi_shared_memory.remove_mapped()  # the agent, which looks now and then, may have missed them
        try:
            sender.failed(failure)
            return
        except OSError as lost:
            print(f"ddprun: lost the launcher ({lost})", file=sys.stderr)
        print(failure.text, end="", file=sys.__stderr__)
        return
    from ddpgrad.distributed.failure import summary  # here, as with a launcher it is the launcher's work

    print(summary.describe([failure]), end="", file=sys.__stderr__)


def _say_goodbye(failure: Failure) -> None:
    """Of a rank whose user has left the debugger with `q` no traceback is wanted."""
    steps = "" if failure.step is None else f" after {failure.step} optimizer step{'s' * (failure.step != 1)}"
    where = f"ddprun: rank {failure.ranks[0]} was at {failure.where}{steps} when the debugger was left"
    print(f"\n{where}; all ranks were ended.", file=sys.__stderr__)


def _prepare_streams(sender: Sender | None, launch: Launch) -> None:
    """Print each line at once, with its rank if the launcher cannot add it; report crashes to the launcher."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    faulthandler.enable(file=sys.stderr.fileno() if sender is None else sender.fd)
    if launch.world_size > 1 and (launch.mpi or len(launch.ranks) > 1):
        from . import rank_stream  # here, as most processes need none

        rank_stream.install(lambda: _current_rank(launch))


def _current_rank(launch: Launch) -> int | None:
    """The rank of this thread; None for a thread of no rank in a process of several."""
    key = rank_local.bound()
    if isinstance(key, host.HostedRank):
        return key.rank
    return launch.ranks[0] if len(launch.ranks) == 1 else None


def _export_torchrun_variables(launch: Launch) -> None:
    """Set the variables that scripts for torchrun read, where one process is one rank."""
    number, size = launch.ranks[0], launch.world_size
    if launch.mpi and (place := environment.local_rank_and_size()):
        # Processes are dealt to hosts in blocks; those beside this one may host several ranks.
        first = launch.proc - place[0]
        begin, end = launch.block(first).start, launch.block(first + place[1] - 1).stop
        number, size = number - begin, end - begin
    environment.export(RANK=str(launch.ranks[0]), LOCAL_RANK=str(number), LOCAL_WORLD_SIZE=str(size))
