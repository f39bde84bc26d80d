"""Finds a straggler: a rank that is alive, but so slow that the others wait for it. It is named, and the job goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddpgrad.distributed.failure.watchdog import Progress

# The others wait for a straggler for this share of the time or more: it takes at least twice as long as they do.
_SHARE = 0.5
# The straggler itself hardly waits. Where ranks share cores, or are late in turns, all of them wait.
_OWN_SHARE = 0.2
# A short delay does not count: a straggler is slow for so many periods in a row, and in each of them all ranks
# began some collectives.
_PERIODS = 5
_FEWEST_COLLECTIVES = 4
_WINDOW_S = 30.0
_SHORTEST_WINDOW_S = 5.0


@dataclass(frozen=True)
class _Mark:
    """The state of a rank when a period began."""

    at: float
    collectives: int
    waited: float


class StragglerDetector:
    """Compares how long processes of one rank each have waited for others. (In a shared process ranks take turns.)

    The processes measure that themselves, so steps may be much shorter than the time between two heartbeats.
    """

    def __init__(self, watchdog: float | None) -> None:
        window = min(_WINDOW_S, watchdog / 2) if watchdog else _WINDOW_S
        self._period = max(_SHORTEST_WINDOW_S, window) / _PERIODS
        self._named: set[int] = set()
        self._marks: dict[int, _Mark] = {}
        self._suspect = -1
        self._periods: list[float] = []
        """For each period in which the suspect was slow: the share of time for which the others waited."""

    def update(self, ranks: Mapping[int, Progress]) -> str:
        """Compare the ranks as they are, none while none has begun; a sentence about a new straggler, or ''."""
        if not ranks or ranks.keys() != self._marks.keys():
            if all(progress.counters[0] for progress in ranks.values()):  # until then some are starting
                self._begin(ranks)
            return ""
        for rank, progress in ranks.items():
            mark = self._marks[rank]
            begun = progress.counters[0] - mark.collectives
            if progress.heartbeat_at - mark.at < self._period or begun < _FEWEST_COLLECTIVES:
                return ""
        shares = {rank: self._share_of(progress) for rank, progress in ranks.items()}
        self._begin(ranks)
        return self._judge(shares, ranks)

    def _begin(self, ranks: Mapping[int, Progress]) -> None:
        self._marks = {rank: _Mark(p.heartbeat_at, p.counters[0], p.waited) for rank, p in ranks.items()}

    def _share_of(self, progress: Progress) -> float:
        """The share of the period for which a rank waited."""
        mark = self._marks[progress.rank]
        return min(1.0, (progress.waited - mark.waited) / (progress.heartbeat_at - mark.at))

    def _judge(self, shares: Mapping[int, float], ranks: Mapping[int, Progress]) -> str:
        slow = min(shares, key=lambda rank: shares[rank])
        others = min((share for rank, share in shares.items() if rank != slow), default=0.0)
        if others < _SHARE or shares[slow] > _OWN_SHARE * others:
            slow = -1
        if slow != self._suspect:
            self._suspect, self._periods = slow, []
        self._periods.append(others)
        if slow < 0 or len(self._periods) < _PERIODS or slow in self._named:
            return ""
        self._named.add(slow)
        share, last = sum(self._periods) / len(self._periods), ranks[slow].last
        text = f"rank {slow} is slow: the others were waiting for it in {share:.0%} of the last "
        text += f"{len(self._periods) * self._period:.0f} s"
        return text + (f"; it last began {last[-1]}" if last else "")
