"""What all-reduces cost, and what a backward takes with other buckets: arithmetic on recorded times, without a model or a group.

It assumes:
- An all-reduce of n bytes takes `latency + per_byte * n`, whatever the dtype. Steps in that line (a way of its own for small
  arrays, caches) are not known; a fit lies between them.
- All-reduces are carried out one after the other, in the order of the buckets, as transports here do.
- The computation of a backward takes as long with other buckets. What it loses to a thread that communicates on the same
  cores is part of the recorded times, and stays.
- Other ranks are as fast: what a rank waits for slower ones is in the costs as far as it was in the recorded times.
- Gradients were computed when they were recorded, which is so on a CPU, and not on a GPU.

Times are seconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Cost:
    """What an all-reduce takes: `latency` seconds, and `per_byte` for each byte.

    overlaps: whether the program computes meanwhile, as a thread or the network does the work. Where it does not, as in
    shared memory, the program itself stands still for all of it.
    """

    latency: float
    per_byte: float
    overlaps: bool

    def seconds(self, nbytes: int) -> float:
        """What an all-reduce of `nbytes` takes."""
        return self.latency + self.per_byte * nbytes


@dataclass(frozen=True)
class Prediction:
    """A backward with its buckets. finished: when it ends, in seconds since it began. exposed: how much of that the program
    stands still for buckets."""

    buckets: int
    finished: float
    exposed: float


def fit(samples: Iterable[tuple[int, float]], overlaps: bool) -> Cost | None:
    """The line through `samples` (bytes, seconds) that misses them least; None for too few sizes.

    Sizes from one power of 4 to the next count as their medians, once for each sample: some all-reduces take far more or less
    than others of their size. Squares are divided by the time: a millisecond more counts less where it is a smaller part.
    Both numbers of the line are at least 0.
    """
    near: dict[int, list[tuple[int, float]]] = {}
    for nbytes, seconds in samples:
        if nbytes > 0 and seconds > 0:
            near.setdefault(nbytes.bit_length() // 2, []).append((nbytes, seconds))
    if len(near) < 2:
        return None
    # (bytes, seconds, weight)
    points = [(median(n for n, _ in s), median(t for _, t in s), len(s)) for s in near.values()]
    points = [(n, t, count / t) for n, t, count in points]
    w = sum(each for *_, each in points)
    wn, wt = sum(n * each for n, _, each in points), sum(t * each for _, t, each in points)
    wnn, wnt = sum(n * n * each for n, _, each in points), sum(n * t * each for n, t, each in points)
    per_byte = (w * wnt - wn * wt) / (w * wnn - wn**2)
    latency = (wt - per_byte * wn) / w
    if per_byte < 0:
        latency, per_byte = wt / w, 0.0
    elif latency < 0:
        latency, per_byte = 0.0, wnt / wnn
    return Cost(latency, per_byte, overlaps)


def replay(buckets: Sequence[tuple[int, float]], computed: float, cost: Cost) -> Prediction:
    """A backward whose computation takes `computed`, with `buckets` (bytes, when the last gradient is there) in their order.

    Times are those of the computation alone, from its beginning: without what the program stands still.
    """
    ended = stood = 0.0  # when the last all-reduce has ended, if it overlaps, and what all have taken
    for nbytes, arrived in buckets:
        ended = max(ended, arrived) + cost.seconds(nbytes)
        stood += cost.seconds(nbytes)
    finished = max(computed, ended) if cost.overlaps else computed + stood
    return Prediction(len(buckets), finished, finished - computed)
