"""A rank that is slow but alive is no fault, and yet all wait for it: it is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddpgrad.distributed.failure.watchdog import Progress

# The others wait for a slow rank for so much of the time: it takes twice as long as they do, or more.
_SHARE = 0.5
# It does not wait itself: where ranks share cores, or are late in turns, all of them wait.
_OWN_SHARE = 0.2
# A passing delay is no news: it lasts for so many periods, one after the other, in each of which all ranks
# began some collectives.
_PERIODS = 5
_FEWEST_COLLECTIVES = 4
_WINDOW_S = 30.0
_SHORTEST_WINDOW_S = 5.0


@dataclass(frozen=True)
class _Mark:
    """What was known of a rank when a period began."""

    at: float
    collectives: int
    waited: float


class Laggard:
    """Judges by how long processes with one rank each have waited for others (in a shared process ranks take turns).

    The processes count that themselves, so steps may be much shorter than the time between two beats.
    """

    def __init__(self, watchdog: float | None) -> None:
        window = min(_WINDOW_S, watchdog / 2) if watchdog else _WINDOW_S
        self._period = max(_SHORTEST_WINDOW_S, window) / _PERIODS
        self._named: set[int] = set()
        self._marks: dict[int, _Mark] = {}
        self._suspect = -1
        self._periods: list[float] = []
        """Of those in which the suspect was slow: the share of time for which the others waited."""

    def heard(self, ranks: Mapping[int, Progress]) -> str:
        """Look at a beat; a sentence about a rank that has been slow for a while, once, or ''."""
        if ranks.keys() != self._marks.keys():
            if all(place.counters[0] for place in ranks.values()):  # until then some are starting
                self._begin(ranks)
            return ""
        for rank, place in ranks.items():
            mark = self._marks[rank]
            begun = place.counters[0] - mark.collectives
            if place.beat_at - mark.at < self._period or begun < _FEWEST_COLLECTIVES:
                return ""
        shares = {rank: self._share_of(place) for rank, place in ranks.items()}
        self._begin(ranks)
        return self._judge(shares, ranks)

    def _begin(self, ranks: Mapping[int, Progress]) -> None:
        self._marks = {rank: _Mark(p.beat_at, p.counters[0], p.waited) for rank, p in ranks.items()}

    def _share_of(self, place: Progress) -> float:
        """For which part of the period a rank waited."""
        mark = self._marks[place.rank]
        return min(1.0, (place.waited - mark.waited) / (place.beat_at - mark.at))

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
        said = f"rank {slow} is slow: the others were waiting for it in {share:.0%} of the last "
        said += f"{len(self._periods) * self._period:.0f} s"
        return said + (f"; it last began {last[-1]}" if last else "")
