"""The error of checkpoints under PyTorch's name, and the ranks that take part in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from ...core.errors import CheckpointError, DistributedError
from ...launcher.checkpoint.agreement import on_all_ranks, rank_and_world_size
from ..process_group import ProcessGroup


class CheckpointException(CheckpointError):
    """A checkpoint could not be written or read. failures: by the rank that failed, its error."""

    def __init__(self, msg: str, failures: Mapping[int, BaseException] | None = None) -> None:
        super().__init__(msg)
        self._failures = dict(failures or {})

    @property
    def failures(self) -> dict[int, BaseException]:
        return self._failures


class Crew(NamedTuple):
    """The ranks that make or read one checkpoint together, and this one's number among them."""

    rank: int
    size: int
    group: ProcessGroup | None
    alone: bool

    @classmethod
    def of(cls, group: ProcessGroup | None, no_dist: bool) -> Crew:
        """The ranks of `group`, by default all; no_dist: this rank acts alone."""
        rank, size = (0, 1) if no_dist else rank_and_world_size(group)
        return cls(rank, size, group, no_dist)

    def all(self, action: Callable[[], Any]) -> list[Any]:
        """The results of `action` by rank; where it fails on one rank, CheckpointException on all."""
        try:
            return on_all_ranks(action, self.group, alone=self.alone)
        except CheckpointError as error:
            failures = dict.fromkeys(error.ranks, error.__cause__ or error)
            raise CheckpointException(str(error), failures) from error.__cause__

    def first(self, action: Callable[[], Any]) -> Any:
        """The result of `action`, which the first rank calls, on all."""
        return self.all(action if self.rank == 0 else lambda: None)[0]


@contextmanager
def telling_of(what: str) -> Iterator[None]:
    """Around code of the program: its errors become CheckpointErrors, so that all ranks learn of them."""
    try:
        yield
    except (CheckpointError, DistributedError):
        raise
    except Exception as error:
        raise CheckpointError(f"{what}: {type(error).__name__}: {error}") from error
