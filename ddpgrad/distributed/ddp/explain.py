"""Where the communication of a model's last steps went: by bucket, as a table and as data."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from .bucket import MIB

if TYPE_CHECKING:
    from .reducer import Reducer

_TIMES = ("ready", "launched", "finished", "exposed")


class Explanation(dict[str, Any]):
    """What `DistributedDataParallel.explain` returns; as text, a table."""

    def __str__(self) -> str:
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
        if self["unused"]:
            late = [b["index"] for b in self["buckets"] if not {*self["unused"]}.isdisjoint(b["parameters"])]
            lines.append(
                f"without a gradient on rank {self['rank']} in the last backward: {', '.join(self['unused'])}. They count as zero "
                f"when backward has ended, and {'bucket' if len(late) == 1 else 'buckets'} {', '.join(map(str, late))} with them. Let forward use them, or call "
                "requires_grad_(False) before the model is wrapped; if no rank has any, find_unused_parameters=False saves an "
                "all-reduce in each step."
            )
        return "\n".join(lines)

    __repr__ = __str__


def explain(reducer: Reducer) -> Explanation:
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
    return Explanation(
        rank=reducer.communicator.rank,
        steps=len(timed),
        buckets=buckets,
        bucket_cap_bytes=reducer.cap_bytes,
        unused=[reducer.names[i] for i in reducer.unused],
        forward=median(began - forward for forward, began, _, _ in timed) if timed else None,
        backward=median(end - began for end, (_, began, _, _) in zip(ended, timed, strict=True))
        if timed
        else None,
        exposed=median(sum(row[3] for row in rows) for _, _, _, rows in timed) if timed else None,
    )
