"""What was measured, as tables and as files: medians of rounds, and how far these lie apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.ddp.bucket import MIB

from . import machine
from .cluster import Forecast
from .collectives import MEMCPY, OPS, Collectives, Row
from .training import Training

FILE = "results.json"


@dataclass(frozen=True)
class Spread:
    """A median over rounds, and the lowest and highest of them."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(min(values), median(values), max(values))

    def text(self, scale: float = 1.0) -> str:
        low, middle, high = (_short(value * scale) for value in (self.low, self.middle, self.high))
        return f"{middle} ({low}-{high})"


@dataclass(frozen=True)
class Point:
    """The rounds of one stack with so many ranks. Times are seconds, throughput samples a second of all ranks.

    efficiency: throughput over that of the fewest ranks of the same stack, each rank counted. exposed: what a step takes longer for
    its all-reduces. memory: bytes, the most of any rank.
    """

    stack: str
    ranks: int
    step: Spread
    throughput: Spread
    efficiency: Spread
    exposed: Spread
    wait: float
    memory: int


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def points(runs: Sequence[Sequence[Training]]) -> list[Point]:
    """One for each of `runs`, which are the rounds of a stack and a number of ranks."""
    rates = {(own[0].stack, own[0].ranks): [_rate(run) for run in own] for own in runs}
    found = []
    for own in runs:
        stack, ranks = own[0].stack, own[0].ranks
        fewest = min(r for s, r in rates if s == stack)
        first = rates[stack, fewest]
        shares = [a / b * fewest / ranks for a, b in zip(rates[stack, ranks], first, strict=True)]
        found.append(
            Point(
                stack, ranks,
                Spread.of([run.step for run in own]), Spread.of(rates[stack, ranks]), Spread.of(shares),
                Spread.of([run.added for run in own]), median(run.parts["wait"] for run in own),
                max(max(run.memory) for run in own),
            )
        )  # fmt: skip
    return found


def _rate(run: Training) -> float:
    return run.samples * run.ranks / run.step


def training_table(found: Sequence[Point]) -> str:
    """A line for each point; the last column is ddpgrad's step over PyTorch's, where that was measured."""
    heads = (
        "stack", "ranks", "step ms", "samples/s", "efficiency", "exposed ms", "wait ms", "MiB a rank", "of PyTorch's",
    )  # fmt: skip
    theirs = {point.ranks: point.step.middle for point in found if point.stack == "torch"}
    rows: list[tuple[str, ...]] = [heads]
    for p in found:
        ratio = f"{p.step.middle / theirs[p.ranks]:.2f}" if p.stack != "torch" and p.ranks in theirs else ""
        rows.append(
            (p.stack, str(p.ranks), p.step.text(1e3), p.throughput.text(), p.efficiency.text(), p.exposed.text(1e3),
             f"{p.wait * 1e3:.3g}", f"{p.memory / MIB:.0f}", ratio)
        )  # fmt: skip
    return aligned(rows)


def collectives_table(found: Collectives, rows: Sequence[Row]) -> str:
    """A line for each of `rows`, whose `seconds` are those of all rounds; rates are those of the medians."""
    heads = (
        "collective", "bytes", "who", "us", "algbw GB/s", "busbw GB/s", "of memcpy", "wrong",
    )  # fmt: skip
    copies = {(row.op, row.nbytes): median(row.seconds) for row in rows if row.who == MEMCPY}
    lines: list[tuple[str, ...]] = [heads]
    for row in rows:
        if row.who == MEMCPY:
            continue
        took, factor = median(row.seconds), OPS[row.op](found.ranks)
        share = f"{copies[row.op, row.nbytes] / took * factor:.2f}" if (row.op, row.nbytes) in copies else ""
        lines.append(
            (row.op, str(row.nbytes), row.who, Spread.of(row.seconds).text(1e6),
             f"{row.nbytes / took / 1e9:.2f}", f"{row.nbytes / took / 1e9 * factor:.2f}", share, str(row.wrong))
        )  # fmt: skip
    return (
        f"{found.ranks} ranks of {len({*found.hosts})} host{'s' * (len({*found.hosts}) > 1)}, {found.device}, {found.transport}; "
        f"a barrier: {found.barrier * 1e6:.1f} us\n{aligned(lines)}"
    )


def forecast_table(found: Sequence[Forecast]) -> str:
    """A line for each number of hosts; the last columns are those of the buckets that promise the least."""
    heads = (
        "hosts", "ranks", "step ms", "efficiency", "exposed ms", "buckets", "best MiB", "buckets", "step ms",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = [heads]
    for f in found:
        rows.append(
            (str(f.hosts), str(f.ranks), f"{f.step * 1e3:.4g}", f"{f.efficiency:.3f}", f"{f.exposed * 1e3:.3g}", str(f.buckets),
             f"{f.best_cap / MIB:.4g}", str(f.best_buckets), f"{f.best_step * 1e3:.4g}")
        )  # fmt: skip
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join((text.ljust if not n else text.rjust)(widths[n]) for n, text in enumerate(row))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def write(folder: Path, what: Mapping[str, Any], runs: Sequence[Sequence[Any]]) -> None:
    """Keep all figures in `folder`. what: what the runs have in common; runs: of each kind of job the rounds."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {**what, "runs": [[asdict(run) for run in rounds] for rounds in runs]}
    (folder / FILE).write_text(json.dumps(told, indent=1))


def read(folder: Path, kind: str) -> tuple[dict[str, Any], list[list[Any]]]:
    """What `write` was given. LaunchError if it is not there, or is of another kind than "training" or "collectives"."""
    path = folder / FILE
    make = {"training": Training, "collectives": Collectives.of}[kind]
    try:
        told = json.loads(path.read_text())
        if told["kind"] != kind:
            raise LaunchError(f"{path} holds {told['kind']}, not {kind}")
        return told, [[make(**run) for run in rounds] for rounds in told.pop("runs")]
    except FileNotFoundError:
        raise LaunchError(f"{path} is not there: give a folder that `ddprun bench` has written") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LaunchError(f"{path} is not what `ddprun bench` writes: {error!r}") from None


def earlier(folder: Path, what: Mapping[str, Any]) -> list[list[Training]]:
    """The runs in `folder`; LaunchError where they are of another benchmark than `what`."""
    before_what, before = read(folder, "training")
    for name, value in what.items():
        if before_what.get(name) != value:
            raise LaunchError(
                f"--against {folder}: it measured {name} {before_what.get(name)}, and this run {value}"
            )
    return before


def against(
    folder: Path, before: Sequence[Sequence[Training]], now: Sequence[Sequence[Training]]
) -> list[str]:
    """Lines that compare `now` with what was measured `before` on this machine; LaunchError where it was another."""
    machine.check_alike(now[0][0].machine, before[0][0].machine, folder)
    known = {(own[0].stack, own[0].ranks): own for own in before}
    lines = []
    for own in now:
        other = known.get((own[0].stack, own[0].ranks))
        if other is not None:
            ours, theirs = (Spread.of([run.step for run in runs]) for runs in (own, other))
            lines.append(
                f"{own[0].stack}, ranks: {own[0].ranks}: {ours.middle / theirs.middle:.3f} of the time before "
                f"({ours.text(1e3)} ms, {theirs.text(1e3)} ms before)"
            )
    return lines
