"""What mpiexec sees of an agent where a job has several hosts, and may kill in its place.

    python -P -m ddpgrad.launcher.job.agent_proxy REPORT JOB script|module TARGET [ARGUMENTS ...]

mpiexec, and with it everything that it has started anywhere, ends at once when it loses a host. An agent
that is killed in this way could not show that its own host is still there: it does that by saying that its
process has ended. So it runs in a process of its own, which learns of the end of this one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from ddpgrad.distributed.failure import children

from . import agent


def main(argv: Sequence[str]) -> int:
    """Run an agent, pass signals on to it, and return its exit code."""
    parent, stand_in = os.getppid(), os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)  # a signal to the group of the stand-in is for that alone
        return agent.main(argv, stand_in)
    children.die_with_parent(parent, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    status = children.exit_status(pid)
    assert status is not None
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
