"""Reports the failure of a process where no ddprun watches it: under mpirun, srun, torchrun, or with no launcher.

The first process of a host that notices a failure collects the failure report (report.py). The others of the
host send it their part, and wait for its end. They meet at a name in the kernel, which is no file. There is
no further process and no thread; while all is well, the cost is a count for each optimizer step.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ...core import environment
from ...core.environment import Launch
from ...core.errors import LaunchError
from .. import mpi_shared_memory
from ..protocol import progress
from . import exit_codes, heartbeat, report_files
from .cause import failure_by_exit, failure_of
from .channel import Failure, Sender
from .report import FailureReport, LocalPeer, describe_rank
from .stacks_signal import STACKS_SIGNAL
from .watchdog import Progress

# Time for the report to be complete.
_REPORT_S = 10.0
# Time between binding its name and accepting connections.
_LISTENING_S = 1.0
_NO_SIGNAL = -1


class Reporter:
    """Reports the failure of the one rank of this process.

    token: a word that only the processes of the job know; peers: the processes of the other ranks of this host that
    can be seen from here, by rank. Raises LaunchError if the folder of DDPGRAD_LOG_DIR cannot be written to.
    """

    def __init__(self, launch: Launch, token: str, peers: Mapping[int, int]) -> None:
        self._launch = launch
        self._rank = launch.ranks.start
        self._pid = os.getpid()
        self._reporting = False
        self._folder = _prepared_folder(self._rank)
        heartbeat.count_steps()
        if not faulthandler.is_enabled():
            faulthandler.enable()
        # An abstract socket, and a file in memory: they end with their last user.
        self._name = f"ddpgrad-{token}"
        self._stacks = self._listen_to_signal()
        self._peers = {rank: LocalPeer(pid, self._name) for rank, pid in peers.items()}

    def _listen_to_signal(self) -> int:
        """Answer STACKS_SIGNAL, unless the program does; the file descriptor for the stacks, or _NO_SIGNAL."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        # Ignored it is by `python ... &` of a shell, and after `leave`.
        if not in_main_thread or signal.getsignal(STACKS_SIGNAL) not in (signal.SIG_DFL, signal.SIG_IGN):
            return _NO_SIGNAL
        # Other processes of this user can read it, and it ends with the process.
        stacks = os.memfd_create(self._name)
        signal.signal(STACKS_SIGNAL, self._answer)
        # First the stacks, in the signal handler itself: native code may never return to Python.
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True, chain=True)
        return stacks

    def failed(self, error: Exception) -> int:
        """Report that this rank ends with `error`, which ends the job; returns the exit code of the job."""
        return self._report(failure_of(error, self._launch))

    def exits(self, status: int) -> int:
        """Report that this rank is calling `os._exit`; returns the exit code of the job."""
        return self._report(failure_by_exit(status, self._rank))

    def leave(self) -> None:
        """The script has finished, or the rank leaves its world: answer STACKS_SIGNAL no longer."""
        if self._stacks != _NO_SIGNAL and os.getpid() == self._pid:
            faulthandler.unregister(STACKS_SIGNAL)
            signal.signal(STACKS_SIGNAL, signal.SIG_IGN)  # which the interpreter leaves so when it ends

    def close(self) -> None:
        """The process goes on without this world: give back what `leave` keeps until its end."""
        self.leave()
        if self._stacks != _NO_SIGNAL and os.getpid() == self._pid:
            os.close(self._stacks)
            self._stacks = _NO_SIGNAL

    def _report(self, failure: Failure) -> int:
        self._reporting = True
        mpi_shared_memory.remove_mapped()
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(f"\0{self._name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            listener.listen(len(self._peers) * 2 + 1)
            # The name is kept until the process ends, so that a late process makes no second report.
            self._listener = listener
            report = FailureReport(listener, self._peers, self._folder)
            code = report.collect(failure, self._progress())
            if not self._launch.mpi:
                report.end_all()
            return code
        listener.close()
        sender = self._connect()
        with contextlib.suppress(BrokenPipeError):  # the report is complete, and its process ends the job
            self._send_progress(sender)
            sender.failed(failure)
        select.select([sender.fd], [], [], _REPORT_S)  # the connection ends with the collecting process
        return exit_codes.OF_CAUSE[failure.cause]

    def _connect(self) -> Sender:
        until = time.monotonic() + _LISTENING_S
        while True:
            try:
                return Sender(f"unix:{self._name}")
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def _progress(self) -> Progress:
        state = progress.hosted()[self._rank]
        known = Progress(self._rank)
        known.update((state.collectives, state.steps, state.signs), state.last())
        return known

    def _send_progress(self, sender: Sender) -> None:
        known = self._progress()
        for what in known.last or [""]:  # one at a time, since the length of a heartbeat is limited
            sender.heartbeat(self._rank, known.counters, [what] if what else [])

    def _answer(self, number: int, frame: object) -> None:
        """Send the progress of this rank to the failure report; its stacks are written already."""
        if self._reporting or os.getpid() != self._pid:
            return
        try:
            sender = Sender(f"unix:{self._name}")
        except ConnectionRefusedError:
            # Nothing has failed: a user has sent the signal.
            stacks = LocalPeer(self._pid, self._name).dump()
            os.lseek(self._stacks, 0, os.SEEK_SET)
            os.ftruncate(self._stacks, 0)
            sys.stderr.write(describe_rank(self._rank, self._progress(), stacks))
            return
        self._send_progress(sender)
        os.close(sender.fd)


def _prepared_folder(rank: int) -> Path | None:
    """The folder of DDPGRAD_LOG_DIR, cleared of the files of this rank from an earlier job."""
    name = environment.log_dir()
    if name is None:
        return None
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report_files.stacks_of(folder, rank).unlink(missing_ok=True)
        if rank == 0:
            (folder / report_files.REPORT).unlink(missing_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        raise LaunchError(f"DDPGRAD_LOG_DIR={name} cannot be written to: {error}") from None
    return folder
