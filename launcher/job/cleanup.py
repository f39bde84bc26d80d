"""Cleans up after a launcher that was killed, from a process of its own.

The kernel ends the ranks of a killed launcher, but not their descendants, and no process is left to remove
the job's files. So a small process waits for the end of a pipe that only the launcher holds. If the pipe ends
without a message, it kills the process groups of the ranks and removes the job's files.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterable

from . import child_process, job_files

_DISMISSED = b"all is well"


class CleanupProcess:
    """A process that outlives a killed launcher. `groups`: the numbers of the ranks' process groups."""

    def __init__(self, job: str, groups: Iterable[int]) -> None:
        waiting, self._pipe = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _run(lambda: _clean_up(waiting, job, tuple(groups)), waiting)
        os.close(waiting)

    def dismiss(self) -> None:
        """End it: the launcher has cleaned up itself."""
        os.write(self._pipe, _DISMISSED)
        os.close(self._pipe)
        os.waitpid(self._pid, 0)


def _run(action: Callable[[], None], keep: int) -> None:
    """Run `action` in a process that shares nothing with the launcher but the file descriptor `keep`, and exit."""
    code = 1
    try:
        os.setsid()  # neither Ctrl-C nor the end of the terminal ends it
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        # Readers of the launcher's output must see its end, and the ranks the end of their channels.
        os.closerange(0, keep)
        os.closerange(keep + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        action()
        code = 0
    finally:
        os._exit(code)


def _clean_up(waiting: int, job: str, groups: Iterable[int]) -> None:
    message = b""
    while data := os.read(waiting, 64):
        message += data
    if message != _DISMISSED:
        for group in groups:
            child_process.send_group(group, signal.SIGKILL)
        job_files.remove(job)
