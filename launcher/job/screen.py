"""Selects the output for the screen and for log files: torchrun's --tee and --redirects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ddpgrad.core.errors import LaunchError

# Streams: 1: standard output, 2: standard error, 3: both, 0: neither.


@dataclass(frozen=True)
class Screen:
    """Which streams are shown and kept, by rank. A process counts as the first rank that it hosts.

    With log files all output is kept, and rank 0's is shown; --tee shows a stream, too, and --redirects
    only keeps it. Without log files all output is shown. only: the ranks that may be shown, by their numbers
    on their host; None: all.
    """

    logs: bool = False
    tee: Mapping[int | None, int] = field(default_factory=dict)
    redirects: Mapping[int | None, int] = field(default_factory=dict)
    only: frozenset[int] | None = None

    def of_ranks(self, hosts: Iterable[range]) -> Screen:
        """The same with the numbers in the whole job; hosts: the ranks of each."""
        if self.only is None:
            return self
        return replace(self, only=frozenset(r for ranks in hosts for r in ranks if r - ranks[0] in self.only))

    def shows(self, ranks: range, stream: int) -> bool:
        """Whether `stream` (1: output, 2: error) of a process that hosts `ranks` goes to the screen."""
        if self.only is not None and ranks[0] not in self.only:
            return False
        if not self.logs:
            return True
        chosen = bool(self.tee) or bool(self.redirects)
        if not chosen:
            return ranks[0] == 0 or self.only is not None
        return self._has(self.tee, ranks, stream) or not self._has(self.redirects, ranks, stream)

    def kept(self, ranks: range, stream: int) -> bool:
        """Whether it goes to a log file."""
        return self.logs

    @staticmethod
    def _has(table: Mapping[int | None, int], ranks: range, stream: int) -> bool:
        return bool(table.get(ranks[0], table.get(None, 0)) & stream)


def parse_filter(text: str | None) -> frozenset[int] | None:
    """The ranks in `text`, such as '0,2'."""
    if text is None:
        return None
    if not all(part.isdecimal() for part in text.split(",")):
        raise LaunchError(f"--local-ranks-filter takes ranks, as in 0,2; got {text!r}")
    return frozenset(map(int, text.split(",")))


def parse(option: str, text: str | None) -> dict[int | None, int]:
    """The streams by rank in `text`, such as '3' or '0:1,1:2' (rank:streams); under None those of all other ranks."""
    table: dict[int | None, int] = {}
    for part in text.split(",") if text else ():
        rank, colon, streams = part.rpartition(":")
        if streams not in ("0", "1", "2", "3") or (colon and not rank.isdecimal()):
            raise LaunchError(
                f"{option} takes 0 (nothing), 1 (standard output), 2 (standard error) or 3 (both), for all ranks "
                f"or as RANK:STREAMS,...; got {text!r}"
            )
        table[int(rank) if colon else None] = int(streams)
    return table
