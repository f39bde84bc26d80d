"""Put the files of a recorded run together: to one timeline, and to a table of where the time went.

The timeline is in the format that Chrome and ui.perfetto.dev read:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...core.spans import COMMUNICATION, PROGRAM, Span

Times = list[tuple[float, float]]


@dataclass(frozen=True)
class Run:
    """What all processes of a run recorded, by one clock.

    hosts: the host of each rank. missing: processes whose files are not there; cut: those whose file ends within a line,
    or is damaged there. memory: of each process, when it took how many bytes; gpu_memory: likewise, of GPUs, where it took any.
    parts: of each process by rank, the bytes of parameters, gradients and optimizer state, as they were last.
    """

    spans: list[Span]
    hosts: dict[int, str]
    missing: list[int]
    cut: list[int] = field(default_factory=list)
    memory: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    gpu_memory: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    parts: dict[int, dict[int, list[int]]] = field(default_factory=dict)


def read(folder: Path) -> Run:
    """The last run that was recorded in `folder`.

    FileNotFoundError if there is none; ValueError, with file and line, for what is no recording.
    """
    files = [
        (_head(path, first), path) for path in folder.glob("timeline-*.jsonl") if (first := _first_line(path))
    ]
    if not files:
        raise FileNotFoundError(
            f"{folder} has no timeline-*.jsonl: record with `ddprun --trace {folder} ...`"
        )
    newest, _ = max(files, key=lambda file: file[1].stat().st_mtime)
    parts = {
        _number(path): (head, *_content(path))
        for head, path in files
        if (head["job"], head["attempt"]) == (newest["job"], newest["attempt"])
    }
    reference = parts.get(0, next(iter(parts.values())))
    spans: list[Span] = []
    hosts: dict[int, str] = {}
    memory: dict[str, dict[int, list[tuple[float, int]]]] = {"memory": {}, "gpu": {}}
    by_rank: dict[int, dict[int, list[int]]] = {}
    for proc, (head, clock, rows, taken, _) in parts.items():
        for row in taken:
            part = row.get("parts")
            if (
                isinstance(row.get("rank"), int)
                and isinstance(part, list)
                and len(part) == 3
                and all(map(_is_time, part))
            ):
                by_rank.setdefault(proc, {})[row["rank"]] = part
        # Processes of one machine read one clock; between machines the measured difference counts.
        ahead = 0.0 if head["host"] == reference[0]["host"] else clock - reference[1]
        for kind, by_proc in memory.items():
            marks = [(row["at"] - ahead, row[kind]) for row in taken if _is_time(row.get(kind))]
            if marks:
                by_proc[proc] = marks
        for rank, track, kind, name, began, ended, details in rows:
            hosts[rank] = head["name"]
            spans.append(Span(rank, track, kind, name, began - ahead, ended - ahead, details))
    spans.sort(key=lambda span: span.began)
    missing = sorted(set(range(newest["procs"])) - set(parts))
    cut = sorted(proc for proc, part in parts.items() if not part[-1])
    resident, gpu = (dict(sorted(by_proc.items())) for by_proc in memory.values())
    return Run(spans, dict(sorted(hosts.items())), missing, cut, resident, gpu, dict(sorted(by_rank.items())))


def _first_line(path: Path) -> str:
    with path.open(errors="replace") as file:
        return file.readline()


def _head(path: Path, line: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError, LookupError, TypeError):
        head = json.loads(line)
        kinds = {"job": str | None, "attempt": int, "procs": int, "host": str, "name": str}
        right = all(isinstance(head[key], kind) for key, kind in kinds.items())
        if right and _number(path) < head["procs"] < 1 << 20:
            return head
    raise ValueError(f"{path}, line 1: not the head of a recording")


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _content(path: Path) -> tuple[float, list[Any], list[dict[str, Any]], bool]:
    """How far ahead the process's clock was, its spans, the lines about its memory, and whether all lines are whole."""
    clock, rows, taken, whole = 0.0, [], [], True
    for number, line in enumerate(path.read_text(errors="replace").rstrip("\n").split("\n")[1:], 2):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # the process was killed while it wrote its last line
            whole = False
            break
        if _is_span(row):
            rows.append(row)
        elif isinstance(row, dict) and _is_time(row.get("clock")):
            clock = row["clock"]
        elif isinstance(row, dict) and _is_time(row.get("at")):
            taken.append(row)
        else:
            raise ValueError(f"{path}, line {number}: neither a span, a clock nor memory")
    return clock, rows, taken, whole


def _is_span(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 7
        and all(isinstance(part, int) for part in row[:2])
        and all(isinstance(part, str) for part in row[2:4])
        and all(_is_time(part) for part in row[4:6])
        and isinstance(row[6], dict | None)
    )


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < 1e18  # not NaN either


def chrome(spans: Iterable[Span], hosts: dict[int, str] | None = None) -> dict[str, Any]:
    """`spans` as Chrome's trace events: a process for each rank, in microseconds since the first span."""
    spans = list(spans)
    zero = min((span.began for span in spans), default=0.0)
    events: list[dict[str, Any]] = []
    for rank in sorted({span.rank or 0 for span in spans}):
        host = f" on {hosts[rank]}" if hosts else ""
        about = {"ph": "M", "pid": rank}
        events.append({**about, "name": "process_name", "args": {"name": f"rank {rank}{host}"}})
        events.append({**about, "name": "process_sort_index", "args": {"sort_index": rank}})
        for track, name in ((PROGRAM, "program"), (COMMUNICATION, "communication")):
            events.append({**about, "tid": track, "name": "thread_name", "args": {"name": name}})
    for span in spans:
        place = {"pid": span.rank or 0, "tid": span.track, "cat": span.kind, "name": span.name,
                 "ts": round((span.began - zero) * 1e6, 3), "args": span.details or {}}  # fmt: skip
        if span.kind == "ready":
            events.append({**place, "ph": "i", "s": "t"})
        else:
            events.append({**place, "ph": "X", "dur": round((span.ended - span.began) * 1e6, 3)})
    return {"displayTimeUnit": "ms", "traceEvents": events}


@dataclass(frozen=True)
class Step:
    """Seconds of one step of one rank; `backward` and `forward` without what they waited for other ranks.

    communication: something of this rank was on its way. exposed: the rank's program was held up
    by it. own: the step without that.
    """

    whole: float
    loader: float
    forward: float
    backward: float
    optimizer: float
    communication: float
    exposed: float

    @property
    def own(self) -> float:
        return self.whole - self.exposed


COLUMNS = ("whole", "loader", "forward", "backward", "optimizer", "communication", "exposed", "own")


def steps(spans: Sequence[Span], rank: int) -> list[Step]:
    """The steps of `rank`: each from the end of an optimizer's step to the end of its next."""
    mine = [span for span in spans if span.rank == rank]
    limits = bounds(mine)
    ends = [high for _, high in limits]
    within: list[list[Span]] = [[] for _ in limits]
    for span in mine:
        for i in range(bisect_right(ends, span.began), len(limits)):
            if span.ended <= limits[i][0]:
                break
            within[i].append(span)
    return [_step(part, low, high) for part, (low, high) in zip(within, limits, strict=True)]


def bounds(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """When each step began and ended, by the `spans` of one rank."""
    updates = [span for span in spans if span.kind == "optimizer"]
    return list(pairwise(span.ended for span in updates if span.name == updates[0].name))


def _step(spans: Sequence[Span], low: float, high: float) -> Step:
    times: dict[str, Times] = {}
    for span in spans:
        times.setdefault(span.kind, []).append((max(span.began, low), min(span.ended, high)))
    waiting = times.get("waiting", [])
    return Step(
        whole=high - low,
        loader=covered(times.get("loader", [])),
        forward=_apart(times.get("forward", []), waiting),
        backward=_apart(times.get("backward", []), waiting),
        optimizer=_apart(times.get("optimizer", []), waiting),
        communication=covered(times.get("communication", [])),
        exposed=covered(waiting),
    )


def covered(times: Times) -> float:
    """The length of the union of `times`."""
    total, reached = 0.0, float("-inf")
    for began, ended in sorted(times):
        total += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return total


def _apart(times: Times, without: Times) -> float:
    """The length of what is in `times` and not in `without`."""
    return covered([*times, *without]) - covered(without)


def table(run: Run, skip: int = 1) -> str:
    """Milliseconds of each rank's median step, without the first `skip`, and the slowest rank."""
    rows: dict[int, list[float]] = {}
    counts: dict[int, int] = {}
    for rank in run.hosts:
        found = steps(run.spans, rank)
        counts[rank] = len(found)
        found = found[skip:] or found
        if found:
            rows[rank] = [1e3 * statistics.median(getattr(step, name) for step in found) for name in COLUMNS]
    heads = ("step", *COLUMNS[1:])
    lines = [
        "milliseconds of the median step",
        f"{'rank':>6}{'steps':>7}" + "".join(f"{head:>15}" for head in heads),
    ]
    for rank, row in rows.items():
        lines.append(f"{rank:>6}{counts[rank]:>7}" + "".join(f"{value:15.2f}" for value in row))
    if not rows:
        return "no rank recorded two steps of an optimizer: the timeline has what else there was"
    slowest = max(rows, key=lambda rank: rows[rank][-1])
    others = [row[-1] for rank, row in rows.items() if rank != slowest]
    if others:
        own = rows[slowest][-1]
        lines.append(
            f"slowest: rank {slowest} on {run.hosts[slowest]}, whose own work takes {own:.2f} ms a step; the median of "
            f"the others is {statistics.median(others):.2f} ms"
        )
    lines.append(
        "communication: something was on its way; exposed: the program stood still for it; own: step without exposed"
    )
    if run.missing:
        lines.append(
            f"without the files of processes {run.missing}: written on another host, or lost with it"
        )
    return "\n".join(lines)
