"""Monitors processes of this host, and finds those that have ended."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Mapping
from pathlib import Path


class ProcessMonitor:
    """Monitors processes of this host. A killed one counts as dead before its parent collects it."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids
        self._dead: set[int] = set()
        self._handles: dict[int, int] = {}
        self._poll = None
        if not hasattr(os, "pidfd_open"):
            return
        self._poll = select.poll()
        for proc, pid in pids.items():
            try:
                handle = os.pidfd_open(pid)
            except OSError as error:
                if error.errno == errno.ESRCH:
                    self._dead.add(proc)
                    continue
                # A sandbox may forbid it; signal 0 answers too, a little later.
                self._poll = None
                return
            self._handles[handle] = proc
            self._poll.register(handle, select.POLLIN)

    def dead(self) -> set[int]:
        """The processes that have ended."""
        if self._poll is not None:
            self._dead.update(self._handles[handle] for handle, _ in self._poll.poll(0))
            return self._dead
        for proc, pid in self._pids.items():
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                self._dead.add(proc)
        return self._dead

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()
        self._poll = None


def has_ended(pid: int) -> bool:
    """Whether the process is gone, even if its parent has not collected it yet."""
    try:
        return status(pid)[0] in "ZX"
    except OSError:
        return True


def status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the program's name: its state, its parent ... OSError if it is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def pid_namespace() -> int:
    """The namespace in which this process's number is what it is; 0 where that cannot be told."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
