"""`ddprun resize`: lets a job that runs go on in another number of processes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..job import control


def main(argv: Sequence[str]) -> int:
    """Run `ddprun resize` with `argv`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="ddprun resize",
        description="Let a job go on in another number of processes: after the present step its ranks save their work and "
        "end, and the same ranks go on from there in new processes, with the same bits. The program calls "
        "Checkpointer.step; with memory_every and --max-restarts no file is read.",
    )
    parser.add_argument("pid", type=int, metavar="PID", help="the process number of its ddprun")
    parser.add_argument("--procs", type=int, required=True, metavar="P", help="the number of processes")
    chosen = parser.parse_args(argv)
    control.ask(chosen.pid, chosen.procs)
    print(f"the job goes on in {chosen.procs} processes after the present step")
    return 0
