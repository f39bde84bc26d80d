"""A barrier that says which ranks did not come, and leaves the group as it was."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np

from ..core.errors import DistributedError, StallError
from .process_group import ProcessGroup, resolve, seconds
from .protocol.guard import blaming
from .tensor_work import arrives, collective


@collective("")
def monitored_barrier(
    group: ProcessGroup | None = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """Return when all ranks have called.

    timeout: a timedelta or seconds; None: what the group's collectives may wait. When it has passed, rank 0 raises
    StallError with the first rank that has not called, or with all of them for `wait_all_ranks`; the ranks that have
    called raise it, too.
    """
    g = resolve(group)
    limit = seconds(timeout)
    limit = g.timeout if limit is None else limit
    g.monitored += 1
    tag = (
        -1 - g.monitored
    )  # such as no program uses, and another for each call: one that comes late finds nobody
    if g.rank() == 0:
        _hear_all(g, limit, tag, wait_all_ranks)
    else:
        _report(g, limit, tag)


def _hear_all(g: ProcessGroup, limit: float, tag: int, wait_all_ranks: bool) -> None:
    """What rank 0 does: hear of each rank in turn, and tell all how that went."""
    c, others = g.communicator, range(1, g.size())
    if limit <= 0:
        raise blaming(
            StallError(f"[Rank 0]: Rank 0 timed out in monitoredBarrier after {limit * 1e3:g} ms."), [0]
        )
    works = {rank: c.recv(np.empty(1, np.int8), rank, tag)[0] for rank in others}
    deadline = time.monotonic() + limit
    missing: list[int] = []
    for rank in others:
        if not arrives(works[rank].poll, deadline - time.monotonic()):
            missing.append(rank)
            if not wait_all_ranks:
                break
    for rank in others:
        c.send(np.array([not missing], np.int8), rank, tag)
    if missing:
        named = f"Rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        raise blaming(
            StallError(f"[Rank 0]: {named} failed to pass monitoredBarrier in {limit * 1e3:g} ms"),
            [g.ranks[rank] for rank in missing],
        )


def _report(g: ProcessGroup, limit: float, tag: int) -> None:
    """What another rank does: tell rank 0, and hear how that went."""
    c, passed, cause = g.communicator, np.zeros(1, np.int8), None
    try:
        c.send(np.ones(1, np.int8), 0, tag)
        arrives(c.recv(passed, 0, tag)[0].poll, limit)
    except DistributedError as error:
        cause = error
    if not passed[0]:
        raise StallError(
            f"[Rank {c.rank}]: Rank {c.rank} successfully reached monitoredBarrier, but received errors while waiting for "
            "send/recv from rank 0. Please check rank 0 logs for faulty rank."
        ) from cause
