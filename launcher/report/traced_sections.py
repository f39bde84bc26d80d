"""The sections about what `ddprun --trace` has recorded: steps and their parts, a timeline, buckets, memory."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from . import step_times
from .chart import COLOURS, Series
from .gantt import timeline
from .markup import Markup, number, table, tag
from .run_data import Run
from .sections import Charts, nothing, section
from .step_times import PARTS, RankTimes

_MOST_RANKS = 16
_MOST_NAMES = 80
_MIB = 1 << 20


def sections(runs: Sequence[Run], charts: Charts, skip: int, steps: Sequence[int]) -> list[Markup]:
    """All of them. skip: steps that medians leave out; steps: those to show, or none for a usual one and the longest."""
    known = [(run, step_times.by_rank(run.trace, skip)) for run in runs if run.trace is not None]
    missing = [run for run in runs if run.trace is None]
    less = [nothing(f"{run.name}: no recording{_why(run)}.") for run in missing]
    less += [
        nothing(f"{run.name}: no rank recorded two steps of an optimizer.")
        for run, ranks in known
        if not ranks
    ]
    known = [(run, ranks) for run, ranks in known if ranks]
    return [
        section("steps", "Time of a step", *_steps(known, charts), *less),
        section("timeline", "Timeline", *_timelines(known, charts, steps), *less),
        section("buckets", "Buckets of gradients", *(_buckets(run) for run, _ in known), *less),
        section("memory", "Memory", *_memory(runs, charts)),
    ]


def _why(run: Run) -> str:
    why = run.absent.get("trace")
    return f": {why}" if why else "; ddprun --trace DIR makes one"


def _steps(known: Sequence[tuple[Run, list[RankTimes]]], charts: Charts) -> list[Markup]:
    if not known:
        return []
    bars, rows, loader, lines = [], [], [], []
    longest = max(sum(map(times.middle, PARTS)) for _, ranks in known for times in ranks) or 1.0
    for run, ranks in known:
        for times in ranks:
            who = f"{run.name}, rank {times.rank}"
            whole, exposed = times.middle("whole"), times.middle("exposed")
            sent = times.middle("communication")
            hidden = f"{max(0.0, 1 - exposed / sent):.0%}" if sent else "-"
            rows.append(
                (
                    who,
                    len(times.steps),
                    *(_ms(times.middle(part)) for part in ("whole", *PARTS)),
                    _ms(sent),
                    hidden,
                )
            )
            most, at = times.longest("loader")
            share = times.middle("loader") / whole if whole else 0.0
            loader.append((who, _ms(times.middle("loader")), f"{share:.1%}", _ms(most), at))
        for times in ranks[:_MOST_RANKS]:
            bars.append(_bar(f"{run.name}, rank {times.rank}", times, longest))
        lines.append(_slowest(run, ranks))
        left_out = len(ranks) - _MOST_RANKS
        lines += (
            [nothing(f"{run.name}: the bars of {left_out} other ranks are not drawn.")]
            if left_out > 0
            else []
        )
    legend = [tag("span", tag("i", class_=f"k-{part}", aria_hidden="true"), part) for part in PARTS]
    heads = ("rank", "steps", "step", *PARTS, "communication", "hidden")
    series = [
        Series(f"{run.name}, rank {times.rank}" if len(known) > 1 else f"rank {times.rank}",
               [(float(i), step.whole * 1e3) for i, step in enumerate(times.steps, step_times.FIRST)],
               (n if len(known) > 1 else m) % COLOURS, m % 4 if len(known) > 1 else 0)
        for n, (run, ranks) in enumerate(known) for m, times in enumerate(ranks[:_MOST_RANKS])
    ]  # fmt: skip
    explained = (
        "A median for each part, so they need not add up to the median step. Exposed: the program stood still for communication. Other: no span names it. Hidden: the share of communication "
        "for which it did not stand still. Steps are numbered as the recording has them."
    )
    return [
        tag(
            "div",
            *bars,
            class_="bars",
            role="img",
            aria_label="Parts of the median step by rank; the table has the numbers",
        ),
        tag("div", *legend, class_="legend"),
        table(heads, rows, "Milliseconds of the median step"),
        tag("p", explained),
        *lines,
        charts.draw("Time of each step", "ms", series),
        table(
            ("rank", "median, ms", "of the step", "longest, ms", "in step"), loader, "Waiting for the loader"
        ),
    ]


def _bar(who: str, times: RankTimes, longest: float) -> Markup:
    parts = []
    for part in PARTS:
        seconds = times.middle(part)
        said = f"{who}, {part}: {_ms(seconds)} ms"
        parts.append(tag("i", class_=f"k-{part}", title=said, style=f"width:{seconds / longest:.2%}"))
    return tag("div", tag("span", who), tag("div", *parts), class_="bar")


def _slowest(run: Run, ranks: Sequence[RankTimes]) -> Markup:
    if len(ranks) < 2 or run.trace is None:
        return Markup("")
    own = {times.rank: times.middle("own") for times in ranks}
    slow = max(own, key=lambda rank: own[rank])
    others = median(value for rank, value in own.items() if rank != slow)
    return tag(
        "p",
        f"{run.name}: the slowest is rank {slow} on {run.trace.hosts[slow]}, whose own work takes {_ms(own[slow])} ms a step; "
        f"the median of the others is {_ms(others)} ms.",
    )


def _timelines(
    known: Sequence[tuple[Run, list[RankTimes]]], charts: Charts, steps: Sequence[int]
) -> list[Markup]:
    drawn: list[Markup] = []
    for run, ranks in known:
        assert run.trace is not None
        shown = {times.rank for times in ranks[:_MOST_RANKS]}
        first, last = step_times.FIRST, max(len(times.steps) for times in ranks) + step_times.FIRST - 1
        for step, why in (dict.fromkeys(steps, "") or step_times.chosen(ranks)).items():
            if not first <= step <= last:
                drawn.append(nothing(f"{run.name}: step {step} is not recorded, {first} to {last} are."))
                continue
            low, high = step_times.window(run.trace, ranks, step)
            if high > low:
                spans = [span for span in run.trace.spans if span.rank in shown]
                title = f"{run.name}, step {step}{f', {why}' if why else ''}"
                drawn.append(timeline(charts.next(), title, spans, low, high))
        if len(ranks) > _MOST_RANKS:
            drawn.append(nothing(f"{run.name}: the first {_MOST_RANKS} of {len(ranks)} ranks are shown."))
    return drawn


def _buckets(run: Run) -> Markup:
    assert run.trace is not None
    rows = []
    for index, bucket in step_times.buckets(run.trace).items():
        way = [end - begin for begin, end in zip(bucket.launched, bucket.finished, strict=True)]
        taken = median(way) if way else 0.0
        rate = f"{bucket.nbytes / taken / 1e6:,.0f}" if taken and bucket.nbytes else "-"
        names = (
            bucket.parameters
            if len(bucket.parameters) <= _MOST_NAMES
            else f"{bucket.parameters[:_MOST_NAMES]}…"
        )
        times = (bucket.ready, bucket.launched, bucket.finished, way, bucket.late)
        size = f"{bucket.nbytes / _MIB:.3f}" if bucket.nbytes else "-"
        rows.append((index, size, *map(_median, times), rate, tag("span", names, title=bucket.parameters)))
    if not rows:
        return nothing(f"{run.name}: no buckets; DistributedDataParallel on several ranks has some.")
    heads = (
        "bucket",
        "MiB",
        "ready",
        "launched",
        "finished",
        "on its way",
        "after backward",
        "MB/s",
        "parameters",
    )
    return table(heads, rows, f"{run.name}: milliseconds since backward began, medians over ranks and steps")


def _memory(runs: Sequence[Run], charts: Charts) -> list[Markup]:
    series, rows, less = [], [], []
    for n, run in enumerate(runs):
        taken = run.trace.memory if run.trace is not None else {}
        zero = min((at for marks in taken.values() for at, _ in marks), default=0.0)
        for proc, marks in taken.items():
            if marks:
                points = [(at - zero, nbytes / _MIB) for at, nbytes in sorted(marks)]
                who = f"{run.name}, process {proc}" if len(runs) > 1 else f"process {proc}"
                most = max(nbytes for _, nbytes in points)
                rows.append((who, number(points[-1][1]), number(most)))
                if proc < _MOST_RANKS:
                    colour, dash = (n, proc) if len(runs) > 1 else (proc, 0)
                    series.append(Series(who, points, colour % COLOURS, dash % 4))
        if not any(taken.values()):
            less.append(
                nothing(
                    f"{run.name}: not recorded. ddprun --trace DIR notes each second what a process takes."
                )
            )
    if series:
        drawn = charts.draw("Resident memory of a process", "MiB", series, "s")
        return [drawn, table(("process", "last, MiB", "most, MiB"), rows, "Memory"), *less]
    return less


def _median(values: Sequence[float]) -> str:
    return _ms(median(values)) if values else "-"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
