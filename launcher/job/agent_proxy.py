"""Stands between mpiexec and an agent where a job has several hosts: mpiexec may kill it instead of the agent.

    python -P -m ddpgrad.launcher.job.agent_proxy REPORT JOB script|module TARGET [ARGUMENTS ...]

When mpiexec loses a host it ends at once, together with all processes that it has started anywhere. An agent
that is killed so could not report the end of its process, and its host would seem lost, too. So the agent
runs in a process of its own, and the kernel tells it when the proxy ends.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from . import agent, child_process


def main(argv: Sequence[str]) -> int:
    """Run an agent, pass signals on to it, and return its exit code."""
    parent, proxy = os.getppid(), os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)  # a signal to the group of the proxy does not reach the agent
        return agent.main(argv, proxy)
    child_process.die_with_parent(parent, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    status = child_process.exit_status(pid)
    assert status is not None
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
