"""The sections about what `ddprun --trace` has recorded: steps and their parts, a timeline, buckets, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ddpgrad.distributed.ddp.explain import Explanation

from . import step_times
from .chart import COLOURS, DASHES, Series
from .gantt import timeline
from .markup import Markup, number, table, tag
from .run_data import EXPLANATION, Run
from .sections import Charts, nothing, section
from .step_times import PARTS, RankTimes

_MOST_RANKS = 16
_MOST_BARS = 32
_MOST_NAMES = 80
_MIB = 1 << 20

_Known = Sequence[tuple[Run, list[RankTimes]]]


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
        section(
            "buckets",
            "Buckets of gradients",
            *(_buckets(run) for run, _ in known),
            *less,
            *map(_explained, runs),
        ),
        section("memory", "Memory", *_memory(runs, charts)),
    ]


def _why(run: Run) -> str:
    why = run.absent.get("trace")
    return f": {why}" if why else "; ddprun --trace DIR makes one"


def _steps(known: _Known, charts: Charts) -> list[Markup]:
    if not known:
        return []
    everyone = [(f"{run.name}, rank {times.rank}", times) for run, ranks in known for times in ranks]
    longest = max(sum(map(times.middle, PARTS)) for _, times in everyone) or 1.0
    bars = [_bar(who, times, longest) for who, times in everyone[:_MOST_BARS]]
    legend = [tag("span", tag("i", class_=f"k-{part}", aria_hidden="true"), part) for part in PARTS]
    about = "Parts of the median step by rank; the table has the numbers"
    heads = ("rank", "steps", "step", *PARTS, "communication", "hidden", "efficiency")
    rows = [(who, len(times.steps), *_numbers(times)) for who, times in everyone]
    explained = (
        "A median for each part, so they need not add up to the median step. Exposed: the program stood still for "
        "communication. Other: no span names it. Hidden: the share of communication for which it did not stand still. "
        "Efficiency: the share of the step that is not exposed, so the rate against a rank alone that computes as fast. "
        "Steps are numbered as the recording has them."
    )
    waits = ("rank", "median, ms", "of the step", "longest, ms", "in step")
    return [
        tag("div", *bars, class_="bars", role="img", aria_label=about),
        tag("div", *legend, class_="legend"),
        table(heads, rows, "Milliseconds of the median step"),
        tag("p", explained),
        *(_slowest(run, ranks) for run, ranks in known),
        charts.draw("Time of each step", "ms", _by_step(known)),
        table(waits, [(who, *_loader(times)) for who, times in everyone], "Waiting for the loader"),
    ]


def _numbers(times: RankTimes) -> list[str]:
    exposed, sent, whole = map(times.middle, ("exposed", "communication", "whole"))
    hidden = f"{max(0.0, 1 - exposed / sent):.0%}" if sent else "-"
    efficiency = f"{max(0.0, 1 - exposed / whole):.1%}" if whole else "-"
    return [*(_ms(times.middle(part)) for part in ("whole", *PARTS)), _ms(sent), hidden, efficiency]


def _loader(times: RankTimes) -> tuple[object, ...]:
    usual, whole, (most, step) = times.middle("loader"), times.middle("whole"), times.longest("loader")
    return _ms(usual), f"{usual / whole:.1%}" if whole else "-", _ms(most), step


def _bar(who: str, times: RankTimes, longest: float) -> Markup:
    parts = []
    for part in PARTS:
        seconds = times.middle(part)
        said = f"{who}, {part}: {_ms(seconds)} ms"
        parts.append(tag("i", class_=f"k-{part}", title=said, style=f"width:{seconds / longest:.2%}"))
    return tag("div", tag("span", who), tag("div", *parts), class_="bar")


def _by_step(known: _Known) -> list[Series]:
    """The length of each step: of each rank or, of more than can be told apart, the shortest and the longest."""
    found = []
    for n, (run, ranks) in enumerate(known):
        lengths = {f"rank {times.rank}": [step.whole for step in times.steps] for times in ranks}
        if len(lengths) > COLOURS:
            steps = list(zip(*lengths.values(), strict=False))
            lengths = {
                "shortest of all ranks": list(map(min, steps)),
                "longest of all ranks": list(map(max, steps)),
            }
        for m, (who, seconds) in enumerate(lengths.items()):
            points = [(float(step), length * 1e3) for step, length in enumerate(seconds, step_times.FIRST)]
            name, colour, dash = (who, m, 0) if len(known) == 1 else (f"{run.name}, {who}", n, m)
            found.append(Series(name, points, colour % COLOURS, dash % DASHES))
    return found


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


def _timelines(known: _Known, charts: Charts, steps: Sequence[int]) -> list[Markup]:
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
        "bucket", "MiB", "ready", "launched", "finished", "on its way", "after backward", "MB/s",
        "parameters",
    )  # fmt: skip
    return table(heads, rows, f"{run.name}: milliseconds since backward began, medians over ranks and steps")


def _explained(run: Run) -> Markup:
    """What a model in DistributedDataParallel said of its last steps, and of other buckets."""
    if run.explanation is None:
        return nothing(f"{run.name}: no {EXPLANATION}, for which a program writes json.dumps(ddp.explain()).")
    try:
        text = str(Explanation(run.explanation))
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
    ):  # whatever else the file may hold
        return nothing(f"{run.name}: {EXPLANATION} is not what ddp.explain() returns.")
    return tag(
        "figure",
        tag("figcaption", f"{run.name}: ddp.explain()"),
        tag("pre", text, tabindex=0),
        class_="chart",
    )


def _memory(runs: Sequence[Run], charts: Charts) -> list[Markup]:
    parts = []
    for title, name, kind in (
        ("Resident memory of a process", "memory", "Memory"),
        ("Memory of GPUs that a process holds", "gpu_memory", "GPU memory"),
    ):
        series, rows = [], []
        for n, run in enumerate(runs):
            taken = getattr(run.trace, name) if run.trace is not None else {}
            zero = min((at for marks in taken.values() for at, _ in marks), default=0.0)
            for proc, marks in taken.items():
                points = [(at - zero, nbytes / _MIB) for at, nbytes in sorted(marks)]
                who = f"{run.name}, process {proc}" if len(runs) > 1 else f"process {proc}"
                most = max(nbytes for _, nbytes in points)
                rows.append((who, number(points[-1][1]), number(most)))
                if proc < _MOST_RANKS:
                    colour, dash = (n, proc) if len(runs) > 1 else (proc, proc // COLOURS)
                    series.append(Series(who, points, colour % COLOURS, dash % DASHES))
        if series:
            drawn = charts.draw(title, "MiB", series, "s")
            parts += [drawn, table(("process", "last, MiB", "most, MiB"), rows, kind)]
    if rows := [row for run in runs if run.trace is not None for row in _parts(run, len(runs) > 1)]:
        heads = ("process", "parameters", "gradients", "optimizer state", "all else", "together")
        parts.append(table(heads, rows, "What memory is for, MiB"))
        said = (
            "All else: activations, buffers, data and the program, which is what a process had at most, on its GPUs where it uses "
            "some, without the other three as they were last."
        )
        parts.append(tag("p", said))
    for run in runs:
        if run.trace is None or not run.trace.memory:
            parts.append(
                nothing(
                    f"{run.name}: not recorded. ddprun --trace DIR notes each second what a process takes."
                )
            )
    return parts


def _parts(run: Run, named: bool) -> Iterator[tuple[str, ...]]:
    """A row for each process that had optimizers: its memory in four parts, and the sum."""
    assert run.trace is not None
    for proc, by_rank in run.trace.parts.items():
        marks = run.trace.gpu_memory.get(proc) or run.trace.memory.get(proc) or [(0.0, 0)]
        known = [sum(part) for part in zip(*by_rank.values(), strict=True)]
        most = max(nbytes for _, nbytes in marks)
        sizes = (*known, max(0, most - sum(known)), most)
        yield f"{f'{run.name}, ' if named else ''}process {proc}", *(number(size / _MIB) for size in sizes)


def _median(values: Sequence[float]) -> str:
    return _ms(median(values)) if values else "-"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
