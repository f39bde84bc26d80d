"""Actions of all ranks around a checkpoint: one rank or all act, and all learn the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from ddpgrad import distributed
from ddpgrad.core.errors import CheckpointError

T = TypeVar("T")


def rank_and_world_size() -> tuple[int, int]:
    """This rank and the number of ranks; (0, 1) without a process group."""
    if not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def any_rank(flag: bool) -> bool:
    """Whether `flag` is true on a rank."""
    return bool(distributed.agree(flag)) if rank_and_world_size()[1] > 1 else flag


def settled(action: Callable[[], T]) -> T:
    """The result of `action` on this rank. When it fails on one rank it raises on all, so that none waits."""
    rank, world_size = rank_and_world_size()
    result, failure, cause = None, None, None
    try:
        result = action()
    except (CheckpointError, OSError) as error:
        failure, cause = str(error), error
    failed = world_size if failure is None else rank
    if world_size > 1:
        failed = distributed.agree(failed, "all", label="checkpoint")
    if failed == world_size:
        return cast(T, result)
    reason, where = [failure], ""
    if world_size > 1:
        distributed.broadcast_object_list(reason, src=failed)
        where = f"rank {failed}: "
    error = CheckpointError(f"{where}{reason[0]}")
    error.ranks = (failed,)
    raise error from (cause if failed == rank else None)


def on_rank_0(action: Callable[[], object]) -> None:
    """Run `action` on rank 0; all ranks wait for it, and raise if it failed."""
    settled(action if rank_and_world_size()[0] == 0 else lambda: None)


def answer_of_rank_0(action: Callable[[], T]) -> T:
    """The result of `action`, plain data, which rank 0 runs, on all ranks. Raises on all if it failed."""
    rank, world_size = rank_and_world_size()
    result = [settled(action if rank == 0 else lambda: None)]
    if world_size > 1:
        distributed.broadcast_object_list(result)
    return cast(T, result[0])


def gathered(action: Callable[[], T]) -> list[T]:
    """The results of `action` by rank, on rank 0; none on the others. When it fails on one rank it raises on all."""
    result, (rank, world_size) = settled(action), rank_and_world_size()
    results: list[Any] = [result]
    if world_size > 1:
        distributed.gather_object(result, results if rank == 0 else None)
    return results if rank == 0 else []


def on_all_ranks(action: Callable[[], Any]) -> list[Any]:
    """The results of `action` by rank, on all: as much for each rank as there are ranks. Else as `settled`."""
    result, (_, world_size) = settled(action), rank_and_world_size()
    outcomes: list[Any] = [result]
    if world_size > 1:
        outcomes = [None] * world_size
        distributed.all_gather_object(outcomes, result)
    return outcomes
