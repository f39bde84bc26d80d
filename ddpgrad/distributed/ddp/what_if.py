"""What other sizes of buckets would give: recorded times, replayed; and the choice of `bucket_cap_mb="auto"` by that."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ...core.spans import now
from .bucket import MIB, Gradient, plan
from .cost_model import Cost, Prediction, fit, replay

if TYPE_CHECKING:
    from ..communicator.communicator import Communicator
    from .reducer import Reducer

CAPS_MB = (1, 5, 10, 25, 50, 100)
MEASURED_BYTES = (1 << 22, 1 << 19, 1 << 16)
"""Sizes of the all-reduces that `measure` times. The largest first: some links let a burst pass faster than they can go on."""

_REPEATS = 5
_LEAST_GAIN = 0.02  # of a backward, for which the usual buckets are given up
_log = logging.getLogger("ddpgrad.distributed")


@dataclass(frozen=True)
class Prospect:
    """What buckets of `cap_bytes` would give; caps: instead the size of each in turn."""

    cap_bytes: int
    caps: tuple[int, ...]
    predicted: Prediction


@dataclass(frozen=True)
class Recording:
    """The computation of a backward, as medians of recorded steps, without what the program stood still in them.

    gradients: name, elements, bytes of an element and dtype of each, in the order in which they arrive; arrived: when, in
    seconds since backward began; computed: when all of backward is computed; cap_bytes: of the buckets it had.
    """

    gradients: list[tuple[str, int, int, str]]
    arrived: list[float]
    computed: float
    cap_bytes: int

    def buckets(self, cap_bytes: int, caps: Sequence[int] = ()) -> list[tuple[int, float]]:
        """Bytes of each bucket of up to `cap_bytes`, and when its last gradient is there, in their order. caps: see `plan`."""
        gradients = [Gradient(*each) for each in self.gradients]
        layouts = plan(gradients, range(len(gradients)), cap_bytes, caps)
        return [
            (
                layout.length * gradients[layout.indices[0]].itemsize,
                max(self.arrived[i] for i in layout.indices),
            )
            for layout in layouts
        ]


def recorded(reducer: Reducer) -> Recording | None:
    """What is recorded of the last steps; None if no step was, or gradients are computed on a GPU."""
    if not reducer.noted or reducer.parameters[0].device.type != "cpu":
        return None
    computed = median(ended for _, ended, _ in reducer.noted)
    arrived = {i: _arrived(reducer, i) for i in reducer.arrival_order}
    order = sorted(arrived, key=lambda i: arrived[i])
    gradients = [reducer.gradients[i] for i in order]
    return Recording(
        [(g.name, g.size, g.itemsize, str(g.key)) for g in gradients],
        [arrived[i] for i in order],
        computed,
        reducer.cap_bytes,
    )


def _arrived(reducer: Reducer, i: int) -> float:
    """When the gradient of parameter `i` is computed, in seconds since backward began; one without, when all is."""
    return median(times.get(i, ended) for times, ended, _ in reducer.noted)


def never_known(reducer: Reducer) -> str:
    """Why nothing can be said of other buckets on any rank; "" if something can."""
    if reducer.communicator.size == 1:
        return "there is one rank, and nothing is exchanged"
    if reducer.parameters[0].device.type != "cpu":
        return "gradients are computed on a GPU, and arrivals are times of the CPU"
    if reducer.hook is not None:
        return "a communication hook exchanges them in its own way"
    return ""


def unknown(reducer: Reducer) -> str:
    """Why nothing can be said of other buckets on this rank; "" if something can."""
    recorded = reducer.noted and reducer.timed
    return never_known(reducer) or ("" if recorded else "no step was recorded since buckets were laid out")


def fitted(reducer: Reducer) -> Cost | None:
    """The cost of all-reduces, from the times of the buckets; None where they have too few sizes."""
    rows = [rows for *_, rows in reducer.timed]
    overlaps = any(row[4] for step in rows for row in step)
    samples: list[tuple[int, float]] = []
    for index, bucket in enumerate(reducer.buckets):
        if bucket.layout.indices[0] not in reducer.sparse:
            # Where the program does the work itself, what it stood still for it; the work of one bucket may be done while
            # another is waited for, in one step more than in another.
            took = median(step[index][4 if overlaps else 3] for step in rows)
            samples.append((_bytes(reducer, bucket.layout.length, bucket.layout.indices[0]), took))
    return fit(samples, overlaps)


def measure(c: Communicator) -> Cost:
    """The cost of all-reduces in the group of `c`, measured by `_REPEATS` of each of `MEASURED_BYTES`. Collective."""
    flat = c.allocate(MEASURED_BYTES[0] // 4, "float32")
    samples: list[tuple[int, float]] = []
    overlaps = False
    for nbytes in MEASURED_BYTES:
        times: list[float] = []
        for _ in range(1 + _REPEATS):
            began = now()
            work = c.all_reduce(flat[: nbytes // 4], "sum", "measurement of the all-reduce", async_op=True)
            work.wait()
            overlaps = work.carried is not None
            times.append(work.carried[1] - work.carried[0] if work.carried else now() - began)
        samples.append((nbytes, median(times[1:])))  # ranks may come late to the first
    cost = fit(samples, overlaps)
    assert cost is not None
    return cost


def prospects(reducer: Reducer, cost: Cost) -> Iterator[Prospect]:
    """What the present buckets give, what `CAPS_MB` would, and one bucket for each dtype. Only where nothing is `unknown`.

    What the replay of the present buckets lacks of the recorded time (waiting for slower ranks, say) is added to all.
    Sparse gradients count as nothing: what they cost depends on how many rows they have.
    """
    count = len(reducer.parameters)
    computed = median(ended for _, ended, _ in reducer.noted)
    arrived = [_arrived(reducer, i) for i in range(count)]
    lacking: float | None = None
    total = sum(p.nbytes for p in reducer.parameters)
    sizes = [(reducer.cap_bytes, tuple(reducer.caps)), *((mb * MIB, ()) for mb in CAPS_MB), (total, (total,))]
    for cap_bytes, caps in sizes:
        buckets = [
            (_bytes(reducer, layout.length, layout.indices[0]), max(arrived[i] for i in layout.indices))
            for layout in reducer.planned(cap_bytes, caps)
            if layout.indices[0] not in reducer.sparse
        ]
        found = replay(buckets, computed, cost)
        if lacking is None:
            lacking = median(whole for *_, whole in reducer.noted) - found.finished
        finished = max(computed, found.finished + lacking)
        yield Prospect(cap_bytes, caps, Prediction(found.buckets, finished, finished - computed))


def _bytes(reducer: Reducer, length: int, first: int) -> int:
    return length * reducer.gradients[first].itemsize


def choose(reducer: Reducer) -> None:
    """Lay the buckets out by the size that promises the shortest backward. Collective.

    Rank 0's times decide. The present buckets stay unless another size promises `_LEAST_GAIN` less.
    """
    c, why = reducer.communicator, unknown(reducer)
    if never_known(reducer):  # the same on all ranks
        return
    cost = None if why else fitted(reducer)
    if c.broadcast_object(cost is None and not why):
        cost = measure(c)
    chosen: tuple[int, Sequence[int]] = reducer.cap_bytes, reducer.caps
    if c.rank == 0 and (why or cost is None):
        _log.warning("bucket_cap_mb='auto' keeps the usual buckets: %s", why)
    elif c.rank == 0 and cost is not None:
        usual, *others = prospects(reducer, cost)
        best = min(others, key=lambda each: each.predicted.finished)
        before, after = usual.predicted, best.predicted
        if after.finished < (1 - _LEAST_GAIN) * before.finished:
            chosen = best.cap_bytes, best.caps
        _log.info(
            "bucket_cap_mb='auto' %s: %.3f ms a backward in %d buckets, and %.3f ms in %d of up to %.4g MiB",
            "keeps the usual buckets" if chosen[0] == reducer.cap_bytes else "takes others",
            *(before.finished * 1e3, before.buckets, after.finished * 1e3, after.buckets),
            best.cap_bytes / MIB,
        )
    cap_bytes, caps = c.broadcast_object((chosen[0], list(chosen[1])))
    reducer.lay_out(reducer.arrival_order, cap_bytes, caps)
    reducer.note_arrivals()
