"""Hosts that join a job while it runs, or leave it: `--hosts-from FILE` is read again when it has changed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import IO

from ddpgrad.core.errors import LaunchError

from . import child_process, hosts, mpi
from .hosts import Host, deal, slots, spelt
from .plan import Plan

_LOOK_S = 1.0
# So long may a new host take to run a first program.
_TRIAL_S = 30.0


@dataclass
class _Trial:
    """A first program on a host that is to join: one that cannot run it would end the job."""

    host: Host
    popen: subprocess.Popen[bytes]
    said: IO[bytes]
    until: float = field(default_factory=lambda: time.monotonic() + _TRIAL_S)

    def problem(self) -> str | None:
        """Why the host cannot join, or ''; None while that is not known."""
        status = self.popen.poll()
        if status is None and time.monotonic() < self.until:
            return None
        if status is None:
            return f"no program has run there within {_TRIAL_S:g} s"
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").splitlines()
        # mpiexec's own lines about the end come last.
        return "" if status == 0 else next(filter(str.strip, lines), f"mpiexec's exit code was {status}")

    def end(self) -> None:
        child_process.send_group(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.said.close()


class HostChanges:
    """What the file says of the hosts. Without a file nothing ever changes."""

    def __init__(self, plan: Plan) -> None:
        self._file, self._most, self._least = plan.hosts_from, plan.most_procs or plan.procs, plan.min_procs
        self._seen = self._signature()
        self._wanted: tuple[Host, ...] | None = None  # since it has changed, until that is acted upon
        self._look_at = 0.0
        self._trials: list[_Trial] | None = None

    def resized(self, procs: int) -> None:
        """The user has asked for so many processes."""
        self._most = procs

    def due(self, plan: Plan, say: Callable[[str], object]) -> Plan | None:
        """`plan` on the hosts that the file asks for, if that differs, and programs run on those that are new.

        say: is told why the plan stays as it is.
        """
        if self._file is None or time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + _LOOK_S
        self._read(say)
        if self._wanted is None:
            return None
        if self._trials is None:
            there = {host.name for host in plan.hosts}
            self._trials = [_tried(plan, host) for host in self._wanted if host.name not in there]
        problems = [trial.problem() for trial in self._trials]
        if None in problems:
            return None
        for trial, problem in zip(self._trials, problems, strict=True):
            if problem:
                say(f"{trial.host.name} does not join: {problem}")
                self._wanted = tuple(host for host in self._wanted if host != trial.host)
        self._end_trials()
        self._trials = []  # who has passed needs no second one
        moved = replace(plan, hosts=self._wanted, procs=min(self._most, slots(self._wanted)))
        least = self._most if self._least is None else self._least
        if moved.procs >= least and deal(moved.hosts, moved.procs) != deal(plan.hosts, plan.procs):
            return moved
        if moved.procs < least:
            would = f"; --min-procs {moved.procs} would do with them" if moved.procs else ""
            say(
                f"{self._file} has slots for {moved.procs} processes, and the job needs {least}{would}. It stays on "
                f"{spelt(plan.hosts)}"
            )
        self.close()
        return None

    def close(self) -> None:
        """Forget what the file asks for, and end what is being tried."""
        self._end_trials()
        self._wanted = self._trials = None

    def _end_trials(self) -> None:
        for trial in self._trials or ():
            trial.end()

    def _signature(self) -> tuple[int, ...]:
        with contextlib.suppress(OSError):
            if self._file is not None:
                found = os.stat(self._file)
                return found.st_mtime_ns, found.st_size, found.st_ino
        return ()

    def _read(self, say: Callable[[str], object]) -> None:
        signature = self._signature()
        if self._file is None or signature in (self._seen, ()):  # () while another takes its place
            return
        self._seen = signature
        self.close()
        try:
            self._wanted = hosts.read(self._file, "--hosts-from")
        except (LaunchError, OSError, UnicodeDecodeError) as error:
            say(f"{error}; the job stays on the hosts that it has")


def _tried(plan: Plan, host: Host) -> _Trial:
    said = os.fdopen(os.memfd_create("ddprun-trial"), "rb")
    return _Trial(host, mpi.try_host(plan, host, said.fileno()), said)
