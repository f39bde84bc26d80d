"""What the folders of one run have recorded. What is damaged is left out, counted, and said in `Run.notes`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure.report_files import REPORT
from ddpgrad.distributed.trace import timeline

from ..checkpoint.checkpointer import Checkpointer
from ..job.logs import EVENTS
from ..job.run_config import FILE as CONFIG
from ..loggers import METRICS

EXPLANATION = "explain.json"
_LARGEST = 1e300  # of what is drawn: twice as much is still a number

Curve = list[tuple[float, float]]
"""(step, value), by step; a value that is no finite number is NaN."""


@dataclass
class Run:
    """One run.

    metrics: the curve of each number in metrics.jsonl. rows: its lines, as they are. log_folder, trace: None where there is
    none; `absent` then says why not. places: the folders that were read. failure: failure.json. events: what ddprun said. explanation: of a model in
    DistributedDataParallel. checkpoints: their names.
    """

    name: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: dict[str, Curve] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    log_folder: Path | None = None
    failure: Mapping[str, Any] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    trace: timeline.Run | None = None
    places: list[Path] = field(default_factory=list)
    explanation: Mapping[str, Any] | None = None
    checkpoints: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def part(self, name: str) -> Mapping[str, Any]:
        """An object of config.json; empty if it is not there."""
        found = self.config.get(name)
        return found if isinstance(found, dict) else {}

    def earlier(self, event: Mapping[str, Any]) -> bool:
        """Whether `event` is of a job that used the log folder before the one of config.json was started."""
        began, then = _moment(self.config.get("started")), _moment(event.get("time"))
        return began is not None and then is not None and then < began


def read(folder: Path, name: str, trace: Path | None = None, logs: Path | None = None) -> Run:
    """The run in `folder`, with the folders that `trace` and `logs` name, or else its config.json.

    LaunchError where a folder is missing or holds nothing of a run, or the recording in `trace` is damaged.
    """
    for path in (folder, trace, logs):
        if path is not None and not path.is_dir():
            raise LaunchError(
                f"{path} is no folder: give the folder of the run"
                if path.exists()
                else f"{path}: there is no such folder"
            )
    run = Run(name, folder)
    run.config = _object(folder / CONFIG, run) or {}
    _read_metrics(run)
    run.explanation = _object(folder / EXPLANATION, run)
    run.log_folder = _folder(run, "log_dir", logs, (REPORT, EVENTS, "rank_*.log"))
    if run.log_folder is not None:
        run.failure = _object(run.log_folder / REPORT, run)
        run.events = _objects(run.log_folder / EVENTS, run)
    recorded = _folder(run, "trace", trace, ("timeline-*.jsonl",))
    run.places = [place for place in (folder, run.log_folder, recorded) if place is not None]
    if recorded is not None:
        try:
            run.trace = timeline.read(recorded)
        except (FileNotFoundError, ValueError) as error:
            if trace is not None:
                raise LaunchError(str(error)) from None
            run.absent["trace"] = "the recording is damaged"
            run.notes.append(str(error))
    if run.trace is not None:
        for processes, how in (
            (run.trace.missing, "not there"),
            (run.trace.cut, "cut off, or damaged at the end"),
        ):
            if processes:
                run.notes.append(f"{recorded}: the files of processes {processes} are {how}")
    places = (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
    run.checkpoints = [path.name for place in places for path in Checkpointer(place).paths()]
    if not (run.config or run.rows or run.log_folder or run.trace or run.checkpoints):
        below = [path.parent for file in (CONFIG, METRICS) for path in folder.glob(f"*/{file}")]
        newest = max(below, key=lambda path: path.stat().st_mtime, default=None)
        raise LaunchError(
            f"{folder} holds nothing of a run: no {CONFIG}, {METRICS}, {REPORT} or timeline-*.jsonl"
            + (f". The newest run in it is {newest}" if newest else "")
        )
    return run


def _moment(text: Any) -> datetime | None:
    with suppress(TypeError, ValueError):
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
    return None


def _folder(run: Run, option: str, given: Path | None, files: tuple[str, ...]) -> Path | None:
    """The folder with any of `files`: `given`, the run's own, or the one of ddprun's `option`, if no later job took it."""
    if given is not None or any(True for file in files for _ in run.folder.glob(file)):
        return given or run.folder
    flag = f"--{option.replace('_', '-')}"
    name = run.part("options").get(option)
    if not isinstance(name, str):
        run.absent[option] = f"the job was not started with ddprun {flag} DIR" if run.config else ""
        return None
    folder = Path(str(run.config.get("folder", ""))) / name
    if not os.path.isdir(folder):  # also where the name is none that a folder may have
        run.absent[option] = f"the folder of {flag}, {folder}, is not there"
        return None
    theirs = _object(folder / CONFIG, run) or {}
    if any(theirs.get(key) != run.config.get(key) for key in ("command", "started")):
        run.absent[option] = f"the folder of {flag}, {folder}, is another job's by now"
    else:
        return folder
    return None


def _read_metrics(run: Run) -> None:
    run.rows = _objects(run.folder / METRICS, run)
    curves: dict[str, dict[float, float]] = {}
    bad: dict[str, list[float]] = {}
    again = 0
    for place, row in enumerate(run.rows, 1):
        step = _number(row.get("step"))
        x = float(place) if step is None or math.isnan(step) else step
        for key, value in row.items():
            y = _number(value)
            if key == "step" or y is None:
                continue
            curve = curves.setdefault(key, {})
            again += x in curve
            curve[x] = y  # the later row counts: a run that goes on from a checkpoint makes steps again
            if math.isnan(y):
                bad.setdefault(key, []).append(x)
    run.metrics = {key: sorted(curve.items()) for key, curve in curves.items()}
    for key, steps in bad.items():
        times = f"{len(steps)} rows" if len(steps) > 1 else "1 row"
        run.notes.append(f"{key} is not a finite number in {times}, first at step {steps[0]:g}")
    if again:
        run.notes.append(f"{METRICS}: {again} values of steps that were made again; the last of each counts")


def _number(value: Any) -> float | None:
    """None for what is no number, NaN for one that is not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < _LARGEST else math.nan


def _objects(path: Path, run: Run) -> list[dict[str, Any]]:
    """The JSON objects in the lines of a file, empty if it is not there; other lines are noted."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LaunchError(f"{path} cannot be read: {error.strerror}") from None
    found: list[dict[str, Any]] = []
    bad: list[int] = []
    for place, line in enumerate(lines, 1):
        row = _parsed(line)
        if isinstance(row, dict):
            found.append(row)
        elif line.strip():
            bad.append(place)
    if bad:
        count = f"{len(bad)} lines are" if len(bad) > 1 else "1 line is"
        run.notes.append(f"{path.name}: {count} no JSON object and left out, the first line {bad[0]}")
    return found


def _object(path: Path, run: Run) -> Mapping[str, Any] | None:
    """The JSON object in a file, None if it is not there; another content is noted."""
    try:
        content = _parsed(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LaunchError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(content, dict):
        run.notes.append(f"{path} is damaged: it holds no JSON object")
        return None
    return content


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
