"""Finds the rank that makes no progress, from the heartbeats of all processes (see heartbeat.py)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .channel import HEARTBEAT_S, heartbeat_s

_LAST = 20
# From so many heartbeats with new steps the rate of steps is computed.
_RECENT = 32


def silence(ranks: int) -> float:
    """Seconds without a heartbeat after which, in a job of so many ranks, a process is stopped or holds the interpreter lock."""
    return max(10 * HEARTBEAT_S, 2.5 * heartbeat_s(ranks))


@dataclass
class Progress:
    """The progress of one rank. Times are monotonic seconds."""

    rank: int
    counters: tuple[int, ...] = (0, 0, 0)
    """Collectives begun, optimizer steps finished, calls of `launcher.alive`."""
    changed_at: float = field(default_factory=time.monotonic)
    heartbeat_at: float = field(default_factory=time.monotonic)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST))
    """The last collectives that it began, the newest at the end."""
    waited: float = 0.0
    """Total seconds that its process has waited for others."""

    _waits: bool = False
    turn: bool = False
    """Whether it is the one that runs, of several in its process."""
    waits_for: str = ""
    """What it waits for, where its stack does not tell."""
    memory: tuple[int | None, int | None] = (None, None)
    """Bytes of memory, and of GPUs' memory, that its process takes, as far as that is known."""
    logged: tuple[int, Mapping[str, float]] | None = None
    """The latest step that it has logged, and the latest numbers."""
    _stepped: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """When heartbeats told of new steps, and how many there were then."""

    @property
    def steps(self) -> int:
        return self.counters[1]

    def rate(self, now: float) -> float | None:
        """Recent optimizer steps a second; None before there are two. It falls where the next one is overdue."""
        if len(self._stepped) < 2:
            return None
        (began, first), *_, (latest, last) = self._stepped
        usual = (latest - began) / (len(self._stepped) - 1)
        return (last - first) / max(latest - began, now - began - usual)

    def update(
        self,
        counters: tuple[int, ...],
        last: Iterable[str],
        waited: float = 0.0,
        turn: bool = False,
        waits_for: str = "",
        memory: Sequence[int | None] = (None, None),
    ) -> None:
        """Take in a heartbeat."""
        self.turn, self.waits_for = turn, waits_for
        self.memory = memory[0], memory[1]
        waits = waited > self.waited
        went_on = self._waits and not waits
        self.waited, self._waits = waited, waits
        self.heartbeat_at = time.monotonic()
        if counters[1] != self.counters[1]:
            self._stepped.append((self.heartbeat_at, counters[1]))
        if counters != self.counters or went_on:
            self.counters, self.changed_at = counters, self.heartbeat_at
        self.last.extend(last)


@dataclass(frozen=True)
class Stall:
    """The suspected ranks, the likeliest first, and the reason for the suspicion."""

    ranks: tuple[int, ...]
    reason: str
    at: float = field(default_factory=time.monotonic)
    waits_for: Mapping[int, str] = field(default_factory=dict)
    """By rank, what it waited for then; a rank that is being ended waits no more."""


def find(ranks: Iterable[Progress], seconds: float, now: float) -> Stall | None:
    """The stall of the job, if the rank that holds it up has made no progress for `seconds`.

    A process without a heartbeat comes first, then the rank that began the fewest collectives: the
    others wait for it. While that rank makes progress, so does the job.
    """
    watched = sorted(ranks, key=lambda p: p.rank)
    if not watched:
        return None
    silent = [p for p in watched if now - p.heartbeat_at > max(silence(len(watched)), seconds / 2)]
    suspects = sorted(silent or watched, key=lambda p: p.counters[0])
    behind = suspects[0]
    # Whoever waited for it has changed nothing since before.
    if now - max(p.changed_at for p in suspects if p.counters[0] == behind.counters[0]) <= seconds:
        return None
    if silent:
        why = "its process sent no heartbeat: it is stopped, or native code holds the interpreter lock"
    elif all(p.counters[0] == behind.counters[0] for p in watched) and len(watched) > 1:
        why = "no rank began another collective or finished a step"
    else:
        why = "it began no collective and finished no step"
    waits_for = {p.rank: p.waits_for for p in watched}
    return Stall(
        tuple(p.rank for p in suspects), f"no progress for {seconds:g} s: {why}", waits_for=waits_for
    )
