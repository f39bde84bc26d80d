"""The agent of a process of a job: it stands between mpiexec, or srun, and the process, on any host.

    python -P -m ddpgrad.launcher.job.agent REPORT JOB script|module TARGET [ARGUMENTS ...]

The launcher reaches a process of another host only through its agent. The agent forwards the messages of the
process, reports its exit status, and sends it the signals that the launcher asks for, also where the process
is stopped or holds its interpreter lock. It ends the process when the launcher's connection ends. After a
failure it stays until the launcher releases it, so that mpiexec does not end the other ranks before they
have reported.

Commands arrive as lines of JSON: {"signal": NUMBER}, and {"leave": true} if the job has not failed in spite
of the process's exit code. The agent imports the standard library, and of ddpgrad only modules that do so.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ddpgrad.core import environment
from ddpgrad.distributed import mpi_shared_memory
from ddpgrad.distributed.failure import stacks_signal
from ddpgrad.distributed.failure.channel import Sender

from . import child_process, job_files

_READ = 64 * 1024
# The agent of a failed process waits so long for the launcher, which ends the other ranks meanwhile.
_STAY_S = 30.0
# Between a SIGTERM to the agent itself, as mpiexec and Slurm send it, and the end of its process.
_GRACE_S = 30.0
# The agent looks so often, and so many times, for the files that a killed MPI library leaves behind.
_LOOK_S = 0.5
_LOOKS = 120
# The agent checks so often whether the launcher's host is still there.
_CHECK_S = 2.0
_NEVER = float("inf")


class Agent:
    """One process and the connection to the launcher."""

    def __init__(self, report: str, arguments: Sequence[str], job: str) -> None:
        self._sender = Sender(report)
        self._job = job
        self._received = b""
        self._segments: set[str] = set()
        self._released = False
        self._orphaned = False
        self._kill_at = _NEVER
        self._status: int | None = None
        self._selector = selectors.DefaultSelector()
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The kernel sends it when the parent has died.
        signal.signal(signal.SIGHUP, self._on_orphaned)
        # mpiexec and Slurm end a job with these, and pass on a signal that they get.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._pass_on)
        self._messages, sending = os.pipe()
        os.set_blocking(self._messages, False)
        rank, _ = environment.mpi_rank_and_size() or (0, 1)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ddpgrad.launcher.job.process_main", f"fd:{sending}", *arguments],
            # mpiexec passes standard input on to the first process, and MPICH's gives the others a pipe that never ends.
            stdin=subprocess.DEVNULL if rank else None,
            close_fds=False,  # MPI libraries pass a connection on to their processes so
            process_group=0,
            preexec_fn=functools.partial(_prepare_child, sending, os.getpid()),
        )
        os.close(sending)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: os.read(self._woken, 4096))
        self._selector.register(self._messages, selectors.EVENT_READ, self._forward)
        self._selector.register(self._sender.fd, selectors.EVENT_READ, self._obey)

    def run(self) -> int:
        """Watch the process to its end, and return its exit code."""
        look_at = time.monotonic() + _LOOK_S
        check_at = time.monotonic() + _CHECK_S
        leave_at = _NEVER
        looks = _LOOKS
        while True:
            now = time.monotonic()
            status = child_process.exit_status(self._process.pid)
            if self._status is None and status is not None:
                self._status = status
                self._report_end(status)
                leave_at = now + _STAY_S
            if self._status is not None and (self._status == 0 or self._released or now >= leave_at):
                break
            if now >= self._kill_at:
                self._kill_at = _NEVER
                child_process.send_group(self._process.pid, signal.SIGKILL)
            if now >= look_at:
                self._find_segments()
                looks -= 1
                look_at = _NEVER if self._segments or not looks else now + _LOOK_S
            if now >= check_at:
                check_at = now + _CHECK_S
                if self._sender.cut_off():
                    self._lose_launcher()
            until = min(leave_at, self._kill_at, look_at, check_at)
            for key, _ in self._selector.select(max(0.0, until - now)):
                key.data()
        if self._status != 0:
            self._clean_up()
        self._process.wait()
        return 128 - self._status if self._status < 0 else self._status

    def _report_end(self, status: int) -> None:
        while self._forward():
            pass
        with contextlib.suppress(OSError):  # the launcher has gone
            if self._orphaned:
                self._sender.orphaned()
            else:
                self._sender.ended(status)
        if status != 0:
            child_process.send_group(self._process.pid, signal.SIGKILL)  # its descendants

    def _forward(self) -> bool:
        """Forward messages of the process; False when there are none, now or ever again."""
        try:
            data = os.read(self._messages, _READ)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._messages)
            return False
        with contextlib.suppress(OSError):
            self._sender.pass_on(data)
        return True

    def _obey(self) -> None:
        try:
            data = os.read(self._sender.fd, _READ)
        except OSError:  # reset, or the launcher's host is gone
            data = b""
        if not data:
            self._lose_launcher()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if "leave" in command:
                self._status = 0
            else:
                self._send(signal.Signals(command["signal"]))

    def _lose_launcher(self) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._sender.fd)
        self._released = True
        child_process.send_group(self._process.pid, signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._find_segments()
            self._released = True
        if number == signal.SIGKILL:
            child_process.send_group(self._process.pid, number)
        else:
            stacks_signal.send(self._process.pid, number)

    def _pass_on(self, number: int, frame: object) -> None:
        os.kill(self._process.pid, number)
        if number == signal.SIGTERM:
            self._released = True
            self._kill_at = min(self._kill_at, time.monotonic() + _GRACE_S)

    def _on_orphaned(self, number: int, frame: object) -> None:
        self._released = self._orphaned = True
        child_process.send_group(self._process.pid, signal.SIGKILL)

    def _find_segments(self) -> None:
        """Note the files in shared memory that the MPI library leaves behind when it is killed."""
        with contextlib.suppress(OSError):  # it has just ended
            self._segments |= mpi_shared_memory.segments_of(self._process.pid)

    def _clean_up(self) -> None:
        for name in self._segments:
            Path(name).unlink(missing_ok=True)
        if self._job:
            job_files.remove(self._job)


def _prepare_child(sending: int, agent: int) -> None:
    os.set_inheritable(sending, True)
    child_process.die_with_parent(agent, signal.SIGKILL)


def main(argv: Sequence[str], parent: int) -> int:
    """Run one process of a job and its agent, which ends when the process `parent` does; returns its exit code."""
    child_process.die_with_parent(parent, signal.SIGHUP)
    report, job, *arguments = argv
    return Agent(report, arguments, job).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.getppid()))
