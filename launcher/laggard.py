"""A rank that is slow but alive is no fault, and yet all wait for it: it is named."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from .watchdog import Progress

# A rank that all others were ahead of in so many of its beats, and that was nearly alone in that, is slow.
_SHARE = 0.3
_ALONE = 0.8
_FEWEST_BEATS = 10
_WINDOW_S = 30.0


class Laggard:
    """Watches the beats of processes with one rank each (in a shared process ranks take turns).

    What a beat says is new, and what is known of the others is older, by up to a beat: a rank that is behind
    all of them even so is the one that they wait for. Steps shorter than a beat are `ddprun trace`'s affair.
    """

    def __init__(self, watchdog: float | None) -> None:
        self._window = min(_WINDOW_S, watchdog / 2) if watchdog else _WINDOW_S
        self._named: set[int] = set()
        self._begin()

    def _begin(self) -> None:
        self._since = time.monotonic()
        self._beats: Counter[int] = Counter()
        self._behind: Counter[int] = Counter()

    def heard(self, rank: int, ranks: Mapping[int, Progress]) -> str:
        """Take in a beat of `rank`; a sentence about a rank that has been slow for a while, once, or ''."""
        others = [place.counters[0] for other, place in ranks.items() if other != rank]
        self._beats[rank] += 1
        if others and ranks[rank].counters[0] < min(others):
            self._behind[rank] += 1
        now = time.monotonic()
        if now - self._since < self._window:
            return ""
        slow, count = max(self._behind.items(), key=lambda item: item[1], default=(-1, 0))
        alone = count >= _ALONE * self._behind.total()
        said = ""
        if count >= max(_FEWEST_BEATS, _SHARE * self._beats[slow]) and alone and slow not in self._named:
            self._named.add(slow)
            share, last = count / self._beats[slow], ranks[slow].last
            said = f"rank {slow} is slow: the others were waiting for it in {share:.0%} of the last {now - self._since:.0f} s"
            said += f"; it last began {last[-1]}" if last else ""
        self._begin()
        return said
