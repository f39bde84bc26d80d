"""Cleans up after a launcher that was killed.

The kernel ends the ranks of a killed launcher, but not what they have started, and nobody is left to
remove their files. So a small process waits for the end of a pipe that only the launcher holds: when
that comes without a word, the process groups of the ranks are killed, and the job's files removed.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterable

from ddpgrad.distributed.failure import children, leftovers

_DISMISSED = b"all is well"


class Guardian:
    """The process that outlives a killed launcher. `groups`: the numbers of the ranks' process groups."""

    def __init__(self, job: str, groups: Iterable[int]) -> None:
        waiting, self._line = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _run(lambda: _guard(waiting, job, tuple(groups)), waiting)
        os.close(waiting)

    def dismiss(self) -> None:
        """The launcher has cleaned up itself."""
        os.write(self._line, _DISMISSED)
        os.close(self._line)
        os.waitpid(self._pid, 0)


def _run(action: Callable[[], None], keep: int) -> None:
    """Run `action` in a process that shares nothing with the launcher, and end without its clean-up."""
    code = 1
    try:
        os.setsid()  # a Ctrl-C, or the end of the terminal, is no reason to leave
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        # The readers of the launcher's output must see its end, and the ranks the end of their channels.
        os.closerange(0, keep)
        os.closerange(keep + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        action()
        code = 0
    finally:
        os._exit(code)


def _guard(waiting: int, job: str, groups: Iterable[int]) -> None:
    said = b""
    while data := os.read(waiting, 64):
        said += data
    if said != _DISMISSED:
        for group in groups:
            children.send_group(group, signal.SIGKILL)
        leftovers.remove(job)
