"""Which rank has stopped to get on, judged by the pulse of all processes (see heartbeat.py)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from .channel import BEAT_S

_LAST = 20
# A process whose pulse stays away so long is stopped, or holds the interpreter lock.
_SILENT_S = 10 * BEAT_S


@dataclass
class Progress:
    """How far one rank has come. Times are monotonic seconds."""

    rank: int
    counters: tuple[int, ...] = (0, 0, 0)
    """Collectives begun, optimizer steps finished, signs of `launcher.alive`."""
    changed_at: float = field(default_factory=time.monotonic)
    beat_at: float = field(default_factory=time.monotonic)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST))
    """The collectives that it began last, the newest at the end."""
    waited: float = 0.0
    """Seconds that its process has waited for others, all together."""

    @property
    def steps(self) -> int:
        return self.counters[1]

    def beat(self, counters: tuple[int, ...], last: Iterable[str], waited: float = 0.0) -> None:
        """Take in a beat."""
        self.waited = waited
        self.beat_at = time.monotonic()
        if counters != self.counters:
            self.counters, self.changed_at = counters, self.beat_at
        self.last.extend(last)


@dataclass(frozen=True)
class Stall:
    """The ranks that hold up the job, the likeliest first, and why that is thought."""

    ranks: tuple[int, ...]
    reason: str
    at: float = field(default_factory=time.monotonic)


def find(ranks: Iterable[Progress], seconds: float, now: float) -> Stall | None:
    """The rank that holds up the job, if it has not got on for `seconds`.

    A process without a pulse comes first, then the rank that began the fewest collectives: the
    others wait for it. While that rank gets on, so does the job.
    """
    watched = sorted(ranks, key=lambda p: p.rank)
    if not watched:
        return None
    silent = [p for p in watched if now - p.beat_at > max(_SILENT_S, seconds / 2)]
    suspects = sorted(silent or watched, key=lambda p: p.counters[0])
    behind = suspects[0]
    if now - behind.changed_at <= seconds:
        return None
    if silent:
        why = "its process gave no sign of life: it is stopped, or native code holds the interpreter lock"
    elif all(p.counters[0] == behind.counters[0] for p in watched) and len(watched) > 1:
        why = "no rank began another collective or finished a step"
    else:
        why = "it began no collective and finished no step"
    return Stall(tuple(p.rank for p in suspects), f"no progress for {seconds:g} s: {why}")


def next_look(ranks: Iterable[Progress], seconds: float) -> float:
    """When `find` may have another answer."""
    return min((p.changed_at + seconds for p in ranks), default=float("inf"))
