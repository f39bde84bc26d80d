"""What an all-reduce, and a training step, would take on a cluster: arithmetic on what was measured here and on its links.

It assumes what `assumptions` tells the user, and what `cost_model` does.

Sources of the bytes that a ring of n ranks moves, 2 (n-1)/n of the buffer over each link: https://doi.org/10.1016/j.jpdc.2008.09.002;
of rates inside a host: the makers' data sheets, one direction, of one GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.ddp.bucket import MIB
from ddpgrad.distributed.ddp.cost_model import Cost, fit, replay
from ddpgrad.distributed.ddp.what_if import CAPS_MB, Recording

from .collectives import BUCKET, Collectives
from .training import Training

_NAMED = {"nvlink3": 300e9, "nvlink4": 450e9, "nvlink5": 900e9, "pcie4": 32e9, "pcie5": 64e9}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(bits?|bytes?|b)(?:ps|/s)?", re.IGNORECASE)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIME = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
# Of a link's rate: frames and headers of Ethernet and TCP with 1,500 bytes take 5 %.
_PAYLOAD = 0.95
_ROUND = 50e-6
_MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Cluster:
    """hosts: with `ranks` ranks each. link: bytes a second that a host sends to others, by all its adapters together.

    intra: bytes a second that a rank sends to others of its host; None: as measured here. latency: seconds of a message between
    hosts; None: as measured between hosts, or a guess.
    """

    hosts: int
    ranks: int
    link: float
    intra: float | None
    latency: float | None


@dataclass(frozen=True)
class Between:
    """What hosts need for a sum, whatever the link: seconds for each of the 2 log2(H) rounds, and for each byte that a host sends.

    measured: on how many hosts; 0: a guess.
    """

    per_round: float
    per_byte: float
    measured: int


def parse(text: str) -> Cluster:
    """`hosts=128,gpus=8,link=200Gb,intra=nvlink4,latency=20us`; gpus may be called ranks. LaunchError if a part is wrong."""
    pairs = [part.replace("gpus=", "ranks=").split("=", 1) for part in text.split(",") if part]
    parts = {name: "".join(value) for name, *value in pairs}
    if len(parts) < len(pairs):
        raise LaunchError(f"--predict {text}: give each part once (gpus and ranks are one part)")
    unknown = [name for name in parts if name not in ("hosts", "ranks", "link", "intra", "latency")]
    if unknown or "hosts" not in parts or "link" not in parts:
        problem = f"there is no {unknown[0]!r}" if unknown else "hosts and link must be given"
        raise LaunchError(
            f"--predict {text}: {problem}. It takes hosts=H,link=RATE and perhaps ranks=R (of each host, default 1), intra=RATE or "
            f"{', '.join(_NAMED)}, latency=TIME, such as hosts=128,ranks=8,link=200Gb,intra=nvlink4,latency=20us"
        )
    hosts, ranks = (_whole(name, parts.get(name, "1")) for name in ("hosts", "ranks"))
    if hosts * ranks > _MOST_RANKS:
        raise LaunchError(f"--predict {text}: {hosts * ranks} ranks are more than {_MOST_RANKS}")
    intra = parts.get("intra")
    latency = _seconds(parts["latency"]) if "latency" in parts else None
    return Cluster(
        hosts, ranks, _rate("link", parts["link"]), None if intra is None else _rate("intra", intra), latency
    )


def _whole(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise LaunchError(f"--predict: {name}={text} must be a whole number, 1 or more")
    return int(text)


def _rate(name: str, text: str) -> float:
    """Bytes a second. A small b, bit: bits; a large B, or byte: bytes; /s or ps may follow."""
    if text in _NAMED:
        return _NAMED[text]
    found = _RATE.fullmatch(text)
    if found is None or float(found[1]) <= 0:
        raise LaunchError(
            f"--predict: {name}={text} must be a rate such as 200Gb or 25GB, or one of {', '.join(_NAMED)}"
        )
    unit = found[3]
    in_bytes = unit == "B" or unit.lower().startswith("byte")
    return float(found[1]) * _SCALE[found[2].lower()] / (1 if in_bytes else 8)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    if found is None:
        raise LaunchError(f"--predict: latency={text} must be a time such as 20us or 0.1ms")
    return float(found[1]) * _TIME[found[2]]


def within(cluster: Cluster, device: str, measured: Sequence[Collectives]) -> Cost | None:
    """The all-reduce of the ranks of one host: by `cluster.intra`, else by a fit to what was measured with as many ranks.

    None where nothing was. The messages of a host take a tenth of those between hosts.
    """
    n = cluster.ranks
    if n == 1:
        return Cost(0.0, 0.0, False)
    if cluster.intra is not None:
        rounds = 2 * (n - 1) * between(cluster, ()).per_round / 10
        return Cost(rounds, 2 * (n - 1) / n / cluster.intra, device == "cuda")
    alike = [about for about in measured if about.ranks == n and len({*about.hosts}) == 1]
    return fit(_samples(alike), overlaps=False)


def between(cluster: Cluster, measured: Sequence[Collectives]) -> Between:
    """What sums between hosts cost beside the link: by a fit to what was measured over several hosts with a rank each."""
    for about in measured:
        hosts = len({*about.hosts})
        cost = fit(_samples([about]), overlaps=True) if hosts == about.ranks > 1 else None
        if cost is not None:
            per_round = cost.latency / _rounds(hosts) if cluster.latency is None else cluster.latency
            return Between(per_round, cost.per_byte / _sent(hosts), hosts)
    return Between(_ROUND if cluster.latency is None else cluster.latency, 0.0, 0)


def uses(cluster: Cluster, measured: Sequence[Collectives]) -> bool:
    """Whether any of `measured` says something about the cluster."""
    inside = cluster.ranks > 1 and cluster.intra is None and within(cluster, "cpu", measured) is not None
    return inside or between(cluster, measured).measured > 0


def _samples(measured: Sequence[Collectives]) -> list[tuple[int, float]]:
    rows = [row for about in measured for row in about.rows]
    return [(row.nbytes, median(row.seconds)) for row in rows if row.op == "all_reduce" and row.who == BUCKET]


def _rounds(hosts: int) -> int:
    return 2 * math.ceil(math.log2(hosts))


def _sent(hosts: int) -> float:
    """Bytes that each host sends for a byte of the buffer."""
    return 2 * (hosts - 1) / hosts


def all_reduce(hosts: int, cluster: Cluster, inside: Cost, outside: Between, device: str) -> Cost:
    """An all-reduce of `hosts` hosts of the cluster, of which each needs `inside` for its own ranks."""
    if hosts == 1:
        return inside
    latency = inside.latency + _rounds(hosts) * outside.per_round
    share = _sent(hosts) * max(1 / (cluster.link * _PAYLOAD), outside.per_byte)
    if device == "cuda":  # rings through all hosts: the slower of the links is what counts
        return Cost(latency, max(inside.per_byte, share), True)
    return Cost(latency, inside.per_byte + share, True)


@dataclass(frozen=True)
class Forecast:
    """A step on `hosts` hosts. Times are seconds. efficiency: against a rank alone; best: the cap that promises the least."""

    hosts: int
    ranks: int
    step: float
    efficiency: float
    exposed: float
    buckets: int
    best_cap: int
    best_buckets: int
    best_step: float


def forecasts(cluster: Cluster, run: Training, inside: Cost, outside: Between) -> Iterator[Forecast]:
    """For 1, 2, 4, ... hosts and all of them, where each rank has the batch of `run`. `run.recording` must be there."""
    assert run.recording is not None
    recording = Recording(**run.recording)
    whole = sum(size * itemsize for _, size, itemsize, _ in recording.gradients)
    alone = median(run.unsynchronised)
    rest = alone - recording.computed
    as_recorded = recording.buckets(recording.cap_bytes)
    buckets = {cap: recording.buckets(cap) for cap in (recording.cap_bytes, *(mb * MIB for mb in CAPS_MB))}
    buckets[whole] = recording.buckets(whole, (whole,))  # a single one of each dtype
    count = 1
    while True:
        cost = all_reduce(count, cluster, inside, outside, run.device)
        found = {cap: replay(each, recording.computed, cost) for cap, each in buckets.items()}
        best = min(found, key=lambda cap: found[cap].finished)
        usual = replay(as_recorded, recording.computed, cost)
        took = rest + usual.finished
        yield Forecast(
            count, count * cluster.ranks, took, alone / took, usual.exposed, usual.buckets,
            best, found[best].buckets, rest + found[best].finished,
        )  # fmt: skip
        if count == cluster.hosts:
            return
        count = min(2 * count, cluster.hosts)


def assumptions(cluster: Cluster, run: Training, inside: Cost, outside: Between) -> list[str]:
    """What the forecasts rest on, for the user."""
    words = "as measured here" if cluster.intra is None else f"by a ring at {cluster.intra / 1e9:.4g} GB/s"
    if cluster.latency is not None:
        how = "as given"
    elif outside.measured:
        how = f"as measured on {outside.measured} hosts"
    else:
        how = "a guess: give latency=, or --collectives DIR with what was measured over hosts"
    told = [
        f"each rank computes as one of {run.ranks} did here, on {run.machine['processor']}, with {run.samples} samples",
        f"a host sends {cluster.link / 1e9:.4g} GB/s, of which {_PAYLOAD:.0%} is payload, and 2 (H-1)/H of a bucket",
        f"2 log2(H) rounds of {outside.per_round * 1e6:.4g} us, {how}",
        "one bucket is bucket_cap_mb_list=[MiB], as bucket_cap_mb=MiB makes the last ones small",
        "buckets follow one another, beside backward's computation where there are several hosts; no rank is late, and the "
        "network is not shared",
    ]
    if cluster.ranks > 1:
        told.insert(
            1,
            f"{cluster.ranks} ranks of a host add {words}: {inside.latency * 1e6:.4g} us and {inside.per_byte * 1e9:.4g} ns a byte",
        )
    return told
