"""Pictures of a benchmark, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .collectives import MEMCPY, OPS, Collectives, Row
from .results import Point
from .training import PARTS, Training


def _axes() -> tuple[Any, Any]:
    """A new figure and its axes; ImportError without matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def training(folder: Path, found: Sequence[Point], runs: Sequence[Sequence[Training]]) -> list[Path]:
    """Efficiency with its spread, and the parts of a step, over the number of ranks. ImportError without matplotlib."""
    figure, axes = _axes()
    for stack in dict.fromkeys(point.stack for point in found):
        own = [point for point in found if point.stack == stack]
        shares = [point.efficiency for point in own]
        ends = [[s.middle - s.low for s in shares], [s.high - s.middle for s in shares]]
        axes.errorbar(
            [p.ranks for p in own], [s.middle for s in shares], yerr=ends, marker="o", capsize=4, label=stack
        )
    axes.set(
        xlabel="ranks",
        ylabel="efficiency",
        ylim=(0, None),
        xscale="log",
        title="throughput a rank, of that of the fewest",
    )
    axes.set_xticks(
        sorted({p.ranks for p in found}), [str(r) for r in sorted({p.ranks for p in found})], minor=False
    )
    axes.legend()
    figure.savefig(folder / "efficiency.svg")

    figure, axes = _axes()
    places = range(len(runs))
    below = [0.0] * len(runs)
    for part in ("wait", "forward", "backward alone", "exposed", "optimizer"):
        heights = [1e3 * median(_parts(run)[part] for run in own) for own in runs]
        axes.bar(places, heights, bottom=below, label=part)
        below = [a + b for a, b in zip(below, heights, strict=True)]
    axes.set_xticks(places, [f"{own[0].stack}\n{own[0].ranks}" for own in runs])
    axes.set(xlabel="stack and ranks", ylabel="milliseconds a step")
    axes.legend()
    figure.savefig(folder / "step.svg")
    return [folder / "efficiency.svg", folder / "step.svg"]


def _parts(run: Training) -> dict[str, float]:
    """The parts of a step, backward without what its all-reduces add."""
    wait, forward, backward, optimizer = (run.parts[name] for name in PARTS)
    exposed = min(backward, run.added)
    alone = backward - exposed
    return {
        "wait": wait,
        "forward": forward,
        "backward alone": alone,
        "exposed": exposed,
        "optimizer": optimizer,
    }


def collectives(folder: Path, found: Sequence[tuple[Collectives, Sequence[Row]]]) -> list[Path]:
    """A picture of bus bandwidth over size for each number of ranks and collective. ImportError without matplotlib."""
    made = []
    for about, rows in found:
        for op in dict.fromkeys(row.op for row in rows):
            figure, axes = _axes()
            for who in dict.fromkeys(row.who for row in rows if row.op == op and row.who != MEMCPY):
                own = [row for row in rows if (row.op, row.who) == (op, who)]
                rates = [[row.nbytes / s / 1e9 * OPS[op](about.ranks) for s in row.seconds] for row in own]
                sizes = [row.nbytes for row in own]
                axes.plot(sizes, [median(each) for each in rates], marker="o", label=who)
                axes.fill_between(
                    sizes, [min(each) for each in rates], [max(each) for each in rates], alpha=0.2
                )
            axes.set(
                xscale="log",
                yscale="log",
                xlabel="bytes",
                ylabel="bus bandwidth, GB/s",
                title=f"{op}, {about.ranks} ranks",
            )
            axes.legend()
            made.append(folder / f"{op}-{about.ranks}.svg")
            figure.savefig(made[-1])
    return made
