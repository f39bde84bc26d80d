"""What a process does about a failure where no ddprun watches: under plain mpirun or srun.

The first process of a host that knows of a failure holds the inquest (report.py). The others of the host
tell it what they saw, and wait for its end; all that it takes is a name in the kernel, which is no file. There
is no further process and no thread, and while all is well it costs a count for each optimizer step.
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
from pathlib import Path

from ...core import environment
from ...core.environment import Launch
from ...core.errors import LaunchError
from ..protocol import progress
from ..transports.liveness import pid_namespace
from ..transports.mpi import library
from . import exit_codes, heartbeat, leftovers, logs
from .cause import failure_by_exit, failure_of
from .channel import STACKS_SIGNAL, Failure, Sender
from .report import Inquest, Neighbour, testimony
from .watchdog import Progress

# For the inquest to come to its end.
_PATIENCE_S = 10.0
# Between its name and its first connection.
_LISTENING_S = 1.0
_NO_SIGNAL = -1


class Reporter:
    """Speaks for the one rank of this process. Making it is collective between the processes of the job.

    Raises LaunchError if the folder of DDPGRAD_LOG_DIR cannot be written to.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._rank = launch.ranks.start
        self._pid = os.getpid()
        self._telling = False
        self._folder = _prepared_folder(self._rank)
        heartbeat.count_steps()
        if not faulthandler.is_enabled():
            faulthandler.enable()
        self._stacks = self._listen_to_signal()
        self._neighbours = self._find_neighbours()
        # In the kernel's table of names, which is no file system, and in which it ends with its last user.
        self._name = f"ddpgrad-{library.shared_token(launch)}"

    def _listen_to_signal(self) -> int:
        """Answer STACKS_SIGNAL, unless the program does; the file descriptor that the stacks go to, or _NO_SIGNAL."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if not in_main_thread or signal.getsignal(STACKS_SIGNAL) != signal.SIG_DFL:
            return _NO_SIGNAL
        # Readable for the others of this user, and gone with the process.
        stacks = os.memfd_create("ddpgrad stacks")
        signal.signal(STACKS_SIGNAL, self._answer)
        # First the stacks, in the signal handler itself: native code may never come back to Python's.
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True, chain=True)
        return stacks

    def _find_neighbours(self) -> dict[int, Neighbour]:
        table = library.gathered(self._launch, (os.getpid(), pid_namespace(), self._stacks))
        here = next(procs for procs in library.hosts(self._launch) if self._launch.proc in procs)
        return {
            self._launch.block(proc).start: Neighbour(int(table[proc, 0]), int(table[proc, 2]))
            for proc in here
            # Containers may share a host and yet number their processes apart.
            if proc != self._launch.proc and table[proc, 1] == table[self._launch.proc, 1]
        }

    def failed(self, error: Exception) -> int:
        """Report that this rank ends with `error`, which ends the job; returns the exit code of the job."""
        return self._tell(failure_of(error, self._launch))

    def exits(self, status: int) -> int:
        """Report that this rank is calling `os._exit`; returns the exit code of the job."""
        return self._tell(failure_by_exit(status, self._rank))

    def leave(self) -> None:
        """The script was finished: nothing more is known here."""
        if self._stacks != _NO_SIGNAL and os.getpid() == self._pid:
            faulthandler.unregister(STACKS_SIGNAL)
            signal.signal(STACKS_SIGNAL, signal.SIG_IGN)  # which the interpreter leaves so when it ends

    def _tell(self, failure: Failure) -> int:
        self._telling = True
        for segment in leftovers.segments_of(self._pid):  # all have it, and nobody will remove it
            Path(segment).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(f"\0{self._name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            listener.listen(len(self._neighbours) * 2 + 1)
            # The name is kept until the process ends: who comes late holds no second inquest.
            self._listener = listener
            return Inquest(listener, self._neighbours, self._folder).hear(failure, self._progress())
        listener.close()
        sender = self._connect()
        with contextlib.suppress(BrokenPipeError):  # the inquest is over, and its process ends the job
            self._testify(sender)
            sender.failed(failure)
        select.select(
            [sender.fd], [], [], _PATIENCE_S
        )  # its end is that of the process that holds the inquest
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
        place = Progress(self._rank)
        place.beat((state.collectives, state.steps, state.signs), state.last())
        return place

    def _testify(self, sender: Sender) -> None:
        place = self._progress()
        for what in place.last or [""]:  # each for itself: a beat has a limit
            sender.beat(self._rank, place.counters, [what] if what else [])

    def _answer(self, number: int, frame: object) -> None:
        """Tell the inquest how far this rank has come; its stacks are written already."""
        if self._telling or os.getpid() != self._pid:
            return
        try:
            sender = Sender(f"unix:{self._name}")
        except ConnectionRefusedError:
            # Nothing has failed: somebody wants to know.
            shown = Neighbour(self._pid, self._stacks).shown()
            os.lseek(self._stacks, 0, os.SEEK_SET)
            os.ftruncate(self._stacks, 0)
            sys.stderr.write(testimony(self._rank, self._progress(), shown))
            return
        self._testify(sender)
        os.close(sender.fd)


def _prepared_folder(rank: int) -> Path | None:
    """The folder of DDPGRAD_LOG_DIR without what an earlier job has left there of this rank."""
    name = environment.log_dir()
    if name is None:
        return None
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        logs.stacks_of(folder, rank).unlink(missing_ok=True)
        if rank == 0:
            (folder / logs.REPORT).unlink(missing_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        raise LaunchError(f"DDPGRAD_LOG_DIR={name} cannot be written to: {error}") from None
    return folder
