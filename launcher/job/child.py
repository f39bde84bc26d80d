"""Where a process of a job begins: it reports to the launcher before anything can go wrong.

    python -P -m ddpgrad.launcher.job.child REPORT script|module TARGET [ARGUMENTS ...]

REPORT is the address of the launcher's channel, or 'none' in a debug run, which has no
launcher. Only then is ddpgrad imported: a process that dies unnoticed at that would leave the
others waiting for it, for mpiexec does not mind.
"""

from __future__ import annotations

import faulthandler
import sys
import time
import traceback
from collections.abc import Sequence

from ddpgrad.distributed.failure.channel import STACKS_SIGNAL, Failure, Sender


def main(argv: Sequence[str]) -> int:
    """Run one process of a job; returns its exit code."""
    report, kind, target, *arguments = argv
    sender = None if report == "none" else Sender(report)
    if sender is not None:
        # It answers even while native code holds the interpreter lock.
        faulthandler.register(STACKS_SIGNAL, file=sender.fd, all_threads=True, chain=False)
    try:
        from . import process
    except Exception as error:
        if sender is None:
            raise
        what = traceback.format_exception_only(error)[-1].strip()
        sender.failed(Failure((), time.monotonic(), "exit code 1", what, traceback.format_exc()))
        return 1
    return process.run(sender, kind, target, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
