"""`ddprun trace`: shows the time of a recorded run, as a table and as a timeline."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from ddpgrad.core.errors import LaunchError


def main(argv: Sequence[str]) -> int:
    """Run `ddprun trace` with `argv`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="ddprun trace",
        description="Show a run that `ddprun --trace DIR` (or ddpgrad.distributed.trace) recorded: prints a table, "
        "and writes a timeline of all ranks, to be opened in https://ui.perfetto.dev or chrome://tracing.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the run was recorded")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the timeline (default: DIR/trace.json)"
    )
    parser.add_argument(
        "--skip", type=int, default=1, metavar="N", help="leave out the first N steps (default 1)"
    )
    given = parser.parse_args(argv)
    if given.skip < 0:
        raise LaunchError(f"--skip {given.skip}: give a number of steps, 0 or more")
    from ddpgrad.distributed.trace import timeline

    try:
        run = timeline.read(given.folder)
    except (FileNotFoundError, ValueError) as error:
        raise LaunchError(str(error)) from None
    output = given.output or given.folder / "trace.json"
    output.write_text(json.dumps(timeline.chrome(run.spans, run.hosts)))
    print(timeline.table(run, given.skip))
    print(f"timeline: {output}")
    return 0
