"""A stream for tests: in a module of its own, which workers can import."""

from __future__ import annotations

from collections.abc import Iterator

from ddpgrad.utils.data import IterableDataset


class Stream(IterableDataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))
