"""Where the steps of a recorded run went: by rank, by bucket, and which steps are worth a look."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from ddpgrad.core.spans import Span
from ddpgrad.distributed.trace import timeline
from ddpgrad.distributed.trace.timeline import Run, Step

PARTS = ("loader", "forward", "backward", "optimizer", "exposed", "other")
"""What adds up to a step: exposed is the time for which the program stood still for others, other what no span names."""
FIRST = 2
"""The number of the first step that is known: it begins where the optimizer's step before it ends."""


@dataclass(frozen=True)
class RankTimes:
    """The steps of a rank. Medians leave out the first `skip`, unless there are no more."""

    rank: int
    steps: list[Step]
    skip: int

    def middle(self, part: str) -> float:
        """Seconds of the median step."""
        return median(part_of(step, part) for step in self.steps[self.skip :] or self.steps)

    def longest(self, part: str) -> tuple[float, int]:
        """The greatest value, and the number of its step."""
        known = list(enumerate(self.steps, FIRST))
        return max((part_of(step, part), number) for number, step in known[self.skip :] or known)


def part_of(step: Step, part: str) -> float:
    """Seconds of one of `PARTS`, or of timeline.COLUMNS."""
    if part == "other":
        return max(0.0, step.whole - sum(part_of(step, each) for each in PARTS if each != "other"))
    return getattr(step, part)


def by_rank(run: Run, skip: int) -> list[RankTimes]:
    """The ranks that recorded two steps of an optimizer, and so one whole."""
    found = (RankTimes(rank, timeline.steps(run.spans, rank), skip) for rank in run.hosts)
    return [times for times in found if times.steps]


def chosen(ranks: Sequence[RankTimes]) -> dict[int, str]:
    """A usual step and the longest, by number, each with the reason why it is shown."""
    count = min(len(times.steps) for times in ranks)
    lengths = {i + FIRST: max(times.steps[i].whole for times in ranks) for i in range(count)}
    later = list(lengths)[ranks[0].skip :] or list(lengths)
    order = sorted(later, key=lambda number: lengths[number])
    return {order[(len(order) - 1) // 2]: "of median length", order[-1]: "the longest"}


def window(run: Run, ranks: Sequence[RankTimes], number: int) -> tuple[float, float]:
    """From when to when any rank was in the step of that number."""
    numbers = {times.rank for times in ranks}
    spans = {rank: [s for s in run.spans if s.rank == rank and s.kind == "optimizer"] for rank in numbers}
    found = [
        bounds[number - FIRST]
        for rank in numbers
        if len(bounds := timeline.bounds(spans[rank])) > number - FIRST
    ]
    return min(low for low, _ in found), max(high for _, high in found)


@dataclass
class Bucket:
    """What became of a bucket of gradients: a row for each rank and step, of seconds since its backward began.

    late: for how long it was on its way after backward had ended.
    """

    parameters: str
    nbytes: int = 0
    ready: list[float] = field(default_factory=list)
    launched: list[float] = field(default_factory=list)
    finished: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)


def buckets(run: Run) -> dict[int, Bucket]:
    """The buckets by number, without those of the first backward of each rank, in which much is done for the first time."""
    found: dict[int, Bucket] = {}
    for rank in run.hosts:
        mine = [span for span in run.spans if span.rank == rank]
        starts = [span.began for span in mine]  # in order
        backwards = [span for span in mine if span.kind == "backward"]
        for backward in backwards[1:] or backwards:
            within = mine[bisect_left(starts, backward.began) : bisect_right(starts, backward.ended)]
            for ready in (span for span in within if span.kind == "ready"):
                _add(found, ready, backward, within)
    return dict(sorted(found.items()))


def _add(found: dict[int, Bucket], ready: Span, backward: Span, within: Sequence[Span]) -> None:
    details = ready.details or {}
    number, parameters = details.get("bucket"), details.get("parameters")
    if not isinstance(number, int) or not isinstance(parameters, str):
        return
    bucket = found.setdefault(number, Bucket(parameters))
    bucket.parameters = parameters  # buckets are laid out again after the first step
    bucket.ready.append(ready.began - backward.began)
    for span in within:
        about = span.details or {}
        # The label of a collective is shortened.
        named = about.get("what") and parameters.startswith(str(about["what"]).rstrip("…"))
        if span.kind == "communication" and named and span.began >= ready.began:
            bucket.nbytes = about["bytes"] if isinstance(about.get("bytes"), int) else 0
            bucket.launched.append(span.began - backward.began)
            bucket.finished.append(span.ended - backward.began)
            bucket.late.append(max(0.0, span.ended - backward.ended))
            return
