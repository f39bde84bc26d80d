"""Actions of all ranks around a checkpoint: one rank or all act, and all learn the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpgrad import distributed
from ddpgrad.core.errors import CheckpointError


def rank_and_world_size(group: distributed.ProcessGroup | None = None) -> tuple[int, int]:
    """This rank and the number of ranks, in `group` or in all; (0, 1) without a process group."""
    if not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(group), distributed.get_world_size(group)


def any_rank(flag: bool) -> bool:
    """Whether `flag` is true on a rank."""
    return bool(distributed.agree(flag)) if rank_and_world_size()[1] > 1 else flag


def on_rank_0(action: Callable[[], None]) -> None:
    """Run `action` on rank 0; all ranks wait for it, and raise if it failed."""
    rank, _ = rank_and_world_size()
    on_all_ranks(action if rank == 0 else lambda: None)


def on_all_ranks(
    action: Callable[[], Any], group: distributed.ProcessGroup | None = None, *, alone: bool = False
) -> list[Any]:
    """The results of `action` by rank. When it fails on one rank it raises on all, so that none waits.

    group: the ranks that take part, by default all; alone: this one only.
    """
    rank, world_size = (0, 1) if alone else rank_and_world_size(group)
    result, failure, cause = None, None, None
    try:
        result = action()
    except (CheckpointError, OSError) as error:
        failure, cause = str(error), error
    outcomes: list[Any] = [[result, failure]]
    if world_size > 1:
        outcomes = [None] * world_size
        distributed.all_gather_object(outcomes, [result, failure], group)
    for failed, (_, reason) in enumerate(outcomes):
        if reason is not None:
            named = failed if world_size == 1 else distributed.get_process_group_ranks(group)[failed]
            where = f"rank {named}: " if world_size > 1 else ""
            error = CheckpointError(f"{where}{reason}")
            error.ranks = (named,)
            raise error from (cause if failed == rank else None)
    return [result for result, _ in outcomes]
