"""The files of a failure report: failure.json, and the stacks of each rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .blame import first_failure
from .channel import Failure
from .watchdog import Progress

REPORT = "failure.json"


def write_failure(
    folder: Path,
    failures: Sequence[Failure],
    code: int,
    progress: Mapping[int, Progress],
    dumps: Mapping[int, str],
    restart_count: int,
) -> None:
    """Write failure.json, whole or not at all, and from `dumps` the stacks of each rank. Raises OSError."""
    report: dict[str, Any] = {
        "exit_code": code,
        "restart_count": restart_count,
        "first": asdict(first_failure(failures)),
        "failures": [asdict(failure) for failure in failures],
        "ranks": {
            rank: {"steps": known.steps, "collectives": known.counters[0], "last": list(known.last)}
            for rank, known in progress.items()
        },
    }
    try:
        (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    except OSError:
        (folder / REPORT).unlink(missing_ok=True)
        raise
    for rank, dump in dumps.items():
        if dump:
            stacks_of(folder, rank).write_text(dump)


def stacks_of(folder: Path, rank: int) -> Path:
    """The file for the stacks of `rank`."""
    return folder / f"rank_{rank}.stacks"
