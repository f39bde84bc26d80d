"""Stands between mpiexec or srun and a process of a job, on whichever host that runs.

    python -P -m ddpgrad.launcher.job.agent REPORT JOB script|module TARGET [ARGUMENTS ...]

The launcher reaches a process of another host only through it: the agent passes on what the
process reports, tells how it ended, and sends it the signals that the launcher asks for, which
works also where the process itself is stopped or holds its interpreter lock. It ends the process
when the launcher's connection ends. After a failure it stays until the launcher lets it go, so
that mpiexec does not end the other ranks before they have said what they saw.

Commands arrive as lines of JSON: {"signal": NUMBER}, and {"leave": true} when all is well in spite of
the process's exit code. Like child.py it imports nothing of ddpgrad.
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

from ddpgrad.distributed.failure import children, leftovers
from ddpgrad.distributed.failure.channel import Sender

_READ = 64 * 1024
# How long a failed process's agent waits for the launcher, which ends the others meanwhile.
_STAY_S = 30.0
# Between a SIGTERM to the agent itself, as mpiexec and Slurm send it, and the end of what it started.
_GRACE_S = 30.0
# How often, and how many times, the files are looked for that MPI libraries leave behind when killed.
_LOOK_S = 0.5
_LOOKS = 120
# How often it is asked whether the launcher's host is still there.
_ASK_S = 2.0
_NEVER = float("inf")


class Agent:
    """One process and the connection to the launcher."""

    def __init__(self, report: str, arguments: Sequence[str], job: str) -> None:
        self._sender = Sender(report)
        self._job = job
        self._heard = b""
        self._segments: set[str] = set()
        self._let_go = False
        self._orphaned = False
        self._kill_at = _NEVER
        self._status: int | None = None
        self._selector = selectors.DefaultSelector()
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The parent has died: the kernel says so.
        signal.signal(signal.SIGHUP, self._on_orphaned)
        # mpiexec and Slurm end a job in this way, and a signal to them comes as this one.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._passed_on)
        self._messages, sending = os.pipe()
        os.set_blocking(self._messages, False)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ddpgrad.launcher.job.child", f"fd:{sending}", *arguments],
            close_fds=False,  # MPI libraries hand on a connection of theirs in this way
            process_group=0,
            preexec_fn=functools.partial(_prepare_child, sending, os.getpid()),
        )
        os.close(sending)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: os.read(self._woken, 4096))
        self._selector.register(self._messages, selectors.EVENT_READ, self._forward)
        self._selector.register(self._sender.fd, selectors.EVENT_READ, self._obey)

    def run(self) -> int:
        """Watch the process to its end; the exit code that says how it ended."""
        look_at = time.monotonic() + _LOOK_S
        ask_at = time.monotonic() + _ASK_S
        leave_at = _NEVER
        looks = _LOOKS
        while True:
            now = time.monotonic()
            status = children.exit_status(self._process.pid)
            if self._status is None and status is not None:
                self._status = status
                self._tell(status)
                leave_at = now + _STAY_S
            if self._status is not None and (self._status == 0 or self._let_go or now >= leave_at):
                break
            if now >= self._kill_at:
                self._kill_at = _NEVER
                children.send_group(self._process.pid, signal.SIGKILL)
            if now >= look_at:
                self._look_for_segments()
                looks -= 1
                look_at = _NEVER if self._segments or not looks else now + _LOOK_S
            if now >= ask_at:
                ask_at = now + _ASK_S
                if self._sender.cut_off():
                    self._lose_launcher()
            until = min(leave_at, self._kill_at, look_at, ask_at)
            for key, _ in self._selector.select(max(0.0, until - now)):
                key.data()
        if self._status != 0:
            self._clean_up()
        self._process.wait()
        return 128 - self._status if self._status < 0 else self._status

    def _tell(self, status: int) -> None:
        while self._forward():
            pass
        with contextlib.suppress(OSError):  # the launcher has gone
            if self._orphaned:
                self._sender.orphaned()
            else:
                self._sender.ended(status)
        if status != 0:
            children.send_group(self._process.pid, signal.SIGKILL)  # what it has started

    def _forward(self) -> bool:
        """Pass on what the process says; False when there is nothing, now or ever again."""
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
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if "leave" in command:
                self._status = 0
            else:
                self._send(signal.Signals(command["signal"]))

    def _lose_launcher(self) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._sender.fd)
        self._let_go = True
        children.send_group(self._process.pid, signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._look_for_segments()
            self._let_go = True
        if number == signal.SIGKILL:
            children.send_group(self._process.pid, number)
        else:
            children.send(self._process.pid, number)

    def _passed_on(self, number: int, frame: object) -> None:
        os.kill(self._process.pid, number)
        if number == signal.SIGTERM:
            self._let_go = True
            self._kill_at = min(self._kill_at, time.monotonic() + _GRACE_S)

    def _on_orphaned(self, number: int, frame: object) -> None:
        self._let_go = self._orphaned = True
        children.send_group(self._process.pid, signal.SIGKILL)

    def _look_for_segments(self) -> None:
        """Note the files in shared memory that the MPI library has made, which it forgets when it is killed."""
        with contextlib.suppress(OSError):  # it has just ended
            self._segments |= leftovers.segments_of(self._process.pid)

    def _clean_up(self) -> None:
        for name in self._segments:
            Path(name).unlink(missing_ok=True)
        if self._job:
            leftovers.remove(self._job)


def _prepare_child(sending: int, agent: int) -> None:
    os.set_inheritable(sending, True)
    children.die_with_parent(agent, signal.SIGKILL)


def main(argv: Sequence[str], parent: int) -> int:
    """Run one process of a job and its agent, which ends when the process `parent` does; returns its exit code."""
    children.die_with_parent(parent, signal.SIGHUP)
    report, job, *arguments = argv
    return Agent(report, arguments, job).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.getppid()))
