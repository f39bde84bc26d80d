"""Where the communication of a model's last steps went, and what other buckets would give: as tables and as data."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from . import what_if
from .bucket import MIB
from .use_errors import advice

if TYPE_CHECKING:
    from .reducer import Reducer

_TIMES = ("ready", "launched", "finished", "exposed")


class Explanation(dict[str, Any]):
    """What `DistributedDataParallel.explain` returns; as text, tables. Times are medians of up to 20 steps, in seconds.

    buckets: of each its `parameters`, `bytes`, and since backward began, when it had all gradients (`ready`), was handed over
    (`launched`) and had its average (`finished`); `exposed`: how long the program stood still for it.
    forward, backward, exposed: of a step. None where no step was recorded since the buckets were laid out.
    caps: what a backward would take with buckets of `cap_bytes`, the first row those in use, the last one bucket of each
    dtype: the number of `buckets`, when the last is there and backward has ended (`finished`), and how much of that is
    `exposed`; empty, and `unpredicted` says why, where that is not known. `cap_mb_list`: of rows that bucket_cap_mb_list
    gives. Arrivals are those of 10 steps since buckets were laid out, or since the last explanation.
    cost: the `latency` of an all-reduce, `bytes_per_second` beyond it, and whether it `overlaps` with backward, by
    `cost_model.Cost`; `measured`, or fitted to the buckets' times. None where it is not known.
    unused: parameters without a gradient in the last backward; unused_by_rank: of each rank, of a collective explanation.
    """

    def __str__(self) -> str:
        lines = [*self._of_buckets(), "", *self._of_caps()]
        names = [name for b in self["buckets"] for name in b["parameters"]]
        by_rank = self["unused_by_rank"] or {self["rank"]: self["unused"]}
        late = [b["index"] for b in self["buckets"] if not {*self["unused"]}.isdisjoint(b["parameters"])]
        for rank, unused in by_rank.items():
            if unused:
                lines.append(
                    f"without a gradient on rank {rank} in the last backward: {', '.join(unused)}. {advice(names, unused)}"
                )
        if late:
            lines.append(
                f"They count as zero when backward has ended, and {'bucket' if len(late) == 1 else 'buckets'} "
                f"{', '.join(map(str, late))} with them. If no rank has any, find_unused_parameters=False saves an all-reduce "
                "in each step."
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _of_buckets(self) -> list[str]:
        heads = ("bucket", "MiB", *_TIMES)
        lines = [
            f"rank {self['rank']}: milliseconds since backward began, medians of {self['steps']} steps",
            "".join(f"{head:>10}" for head in heads) + "  parameters",
        ]
        for b in self["buckets"]:
            times = "".join("         -" if b[t] is None else f"{b[t] * 1e3:10.3f}" for t in _TIMES)
            first, last = b["parameters"][0], b["parameters"][-1]
            named = first if first == last else f"{first} … {last} ({len(b['parameters'])})"
            lines.append(f"{b['index']:>10}{b['bytes'] / MIB:>10.3f}{times}  {named}")
        if self["steps"]:
            share = self["exposed"] / self["backward"] if self["backward"] else 0.0
            lines.append(
                f"backward {self['backward'] * 1e3:.3f}, of which the program stood still for buckets {self['exposed'] * 1e3:.3f} "
                f"({share:.0%}); forward {self['forward'] * 1e3:.3f}"
            )
        return lines

    def _of_caps(self) -> list[str]:
        if self["unpredicted"]:
            return [f"what other buckets would give is not known: {self['unpredicted']}"]
        cost = self["cost"]
        rate = f" and {cost['bytes_per_second'] / 1e6:.4g} MB/s" if cost["bytes_per_second"] else ""
        lines = [
            "what other buckets would give: milliseconds, predicted from arrivals and "
            f"{'measured' if cost['measured'] else 'fitted'} all-reduces of {cost['latency'] * 1e3:.3g} ms{rate}, "
            f"{'beside' if cost['overlaps'] else 'within'} backward's computation",
            f"{'cap in MiB':>24}{'buckets':>10}{'finished':>10}{'exposed':>10}",
        ]
        for n, row in enumerate(self["caps"]):
            size = f"{row['cap_bytes'] / MIB:.4g}"
            if row["cap_mb_list"]:
                size = f"[{', '.join(f'{mb:.4g}' for mb in row['cap_mb_list'])}]"
            size += "" if n else ", in use"
            times = f"{row['finished'] * 1e3:10.3f}{row['exposed'] * 1e3:10.3f}"
            lines.append(f"{size:>24}{row['buckets']:>10}{times}")
        return lines


def explain(reducer: Reducer, collective: bool) -> Explanation:
    """See `DistributedDataParallel.explain`."""
    timed = list(reducer.timed)
    buckets = []
    for index, bucket in enumerate(reducer.buckets):
        # Times of day by bucket become seconds since backward began; what is exposed is a length.
        rows = [(*(t - began for t in rows[index][:3]), rows[index][3]) for _, began, _, rows in timed]
        times = [median(column) for column in zip(*rows, strict=True)] or [None] * 4
        names = [reducer.names[i] for i in bucket.layout.indices]
        nbytes = sum(reducer.parameters[i].nbytes for i in bucket.layout.indices)
        buckets.append(
            {"index": index, "parameters": names, "bytes": nbytes, **dict(zip(_TIMES, times, strict=True))}
        )
    ended = [max(computed, *(row[2] for row in rows)) for _, _, computed, rows in timed]
    c, unused = reducer.communicator, [reducer.names[i] for i in reducer.unused]
    told = Explanation(
        rank=c.rank,
        steps=len(timed),
        buckets=buckets,
        bucket_cap_bytes=reducer.cap_bytes,
        unused=unused,
        unused_by_rank=dict(enumerate(c.all_gather_object(unused))) if collective else None,
        forward=median(began - forward for forward, began, _, _ in timed) if timed else None,
        backward=median(end - began for end, (_, began, _, _) in zip(ended, timed, strict=True))
        if timed
        else None,
        exposed=median(sum(row[3] for row in rows) for _, _, _, rows in timed) if timed else None,
        **_predicted(reducer, collective),
    )
    reducer.note_arrivals()
    return told


def _predicted(reducer: Reducer, collective: bool) -> dict[str, Any]:
    """`cost`, `caps` and `unpredicted`."""
    # The ranks measure together: also where one of them has no times, to which it would apply.
    together = collective and not what_if.never_known(reducer)
    measured = what_if.measure(reducer.communicator) if together else None
    why, cost = what_if.unknown(reducer), measured
    if not why and cost is None:
        cost = what_if.fitted(reducer)
        if cost is None:
            why = "the buckets have too few sizes to fit a line. explain(collective=True), called on all ranks, measures"
    rows = []
    for each in what_if.prospects(reducer, cost) if cost is not None and not why else ():
        rows.append(
            {
                "cap_bytes": each.cap_bytes,
                "cap_mb_list": [size / MIB for size in each.caps],
                "buckets": each.predicted.buckets,
                "finished": each.predicted.finished,
                "exposed": each.predicted.exposed,
            }
        )
    line = None
    if cost is not None:
        rate = 1 / cost.per_byte if cost.per_byte else None
        line = {"latency": cost.latency, "bytes_per_second": rate, "overlaps": cost.overlaps}
        line["measured"] = measured is not None
    return {"cost": line, "caps": rows, "unpredicted": why}
