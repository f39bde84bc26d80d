"""`ddprun report`: writes what the folders of runs have recorded to one HTML file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes

if TYPE_CHECKING:
    from ..report import run_data


def main(argv: Sequence[str]) -> int:
    """Run `ddprun report` with `argv`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="ddprun report",
        description="Write one HTML file, which needs no network, about a run or several: curves, the time of a step, a "
        "timeline of all ranks, buckets, memory, failures, settings and versions. RUN_DIR has a program's "
        "metrics.jsonl and config.json, or is a folder of --log-dir or --trace; the folders that the job was "
        "started with are found by its config.json.",
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="RUN_DIR", help="the folder of a run")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help="the file to write (default: report.html in the first RUN_DIR)")  # fmt: skip
    parser.add_argument("--trace", type=Path, action="append", default=[], metavar="DIR",
                        help="what `ddprun --trace DIR` recorded of it; once for each run, in their order")  # fmt: skip
    parser.add_argument("--logs", type=Path, action="append", default=[], metavar="DIR",
                        help="what `ddprun --log-dir DIR` kept of it; likewise")  # fmt: skip
    parser.add_argument("--steps", type=_steps, default=(), metavar="K,L,...",
                        help="the steps of the timeline (default: one of median length, and the longest)")  # fmt: skip
    parser.add_argument("--skip", type=int, default=1, metavar="N",
                        help="leave out the first N steps of medians (default 1)")  # fmt: skip
    parser.add_argument("--serve", type=int, nargs="?", const=0, metavar="PORT",
                        help="write no file, but show the page on this machine alone; it renews itself when the "
                        "files of a run change (default: any free port)")  # fmt: skip
    given = parser.parse_args(argv)
    if given.skip < 0:
        raise LaunchError(f"--skip {given.skip}: give a number of steps, 0 or more")
    from ..report import page, server

    def read() -> list[run_data.Run]:
        return page.read(given.folders, given.trace, given.logs)

    def render(runs: list[run_data.Run], version: str | None = None) -> str:
        return page.render(runs, given.skip, given.steps, version)

    runs = read()
    if given.serve is not None:
        server.serve(given.serve, server.Latest(read, render))
        return exit_codes.FINISHED
    text = render(runs)
    output = given.output or given.folders[0] / "report.html"
    try:
        # What no encoding has, such as half of a surrogate pair, is no reason to write nothing.
        output.write_text(text, "utf-8", errors="replace")
    except OSError as error:
        raise LaunchError(f"{output} cannot be written: {error.strerror}") from None
    for run in runs:
        for note in run.notes:
            print(f"{run.name}: {note}")
    print(f"report: {output}")
    return exit_codes.FINISHED


def _steps(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be numbers of steps with commas between them, such as 12,13"
        ) from None
