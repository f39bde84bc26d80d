"""What all ranks do in a step whose averaged gradients are not finite: one decision, with the rank and parameter named."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import DistributedError
from ..communicator.communicator import Communicator
from ..protocol.guard import blaming
from .averages import ADVICE, is_finite

if TYPE_CHECKING:
    from .averages import Averages
    from .reducer import Reducer

_log = logging.getLogger("ddpgrad.distributed")


def shared(c: Communicator, spoiled: bool) -> bool:
    """Whether averages that a rank has for itself are spoiled on some rank. Collective."""
    told = np.array([spoiled], np.uint8)
    c.all_reduce(told, "max", "whether gradients are finite")
    return bool(told[0])


def settle_buckets(reducer: Reducer, action: str) -> BaseException | None:
    """`settle` where the averages of `reducer` are not finite; None where they are."""
    spoiled = not all(is_finite(bucket.flat) for bucket in reducer.buckets)
    if reducer.sparse or reducer.hook is not None:  # results that a rank may have for itself
        spoiled = shared(reducer.communicator, spoiled)
    return settle(reducer, action) if spoiled else None


def settle(averages: Averages, action: str) -> BaseException | None:
    """Drop the averaged gradients, which are spoiled, ask the ranks whose gradients it was, and return what is to be raised."""
    c = averages.communicator
    names = c.all_gather_object(averages.finite.found)
    for owner in averages.owners:
        owner._grad = None
    ranks = [rank for rank, name in enumerate(names) if name]
    step = averages.steps + 1
    if ranks:
        others = f", and those of ranks {ranks[1:]} are not" if ranks[1:] else ""
        what = f"the gradient of '{names[ranks[0]]}' of rank {ranks[0]} is not finite{others}"
    else:
        what = "the gradients of all ranks are finite, and their average is not: it overflowed"
    if action == "skip":
        if c.rank == 0:
            _log.warning("step %d is left out: %s", step, what)
        return None
    advice = ADVICE if ranks else ""
    error = blaming(
        DistributedError(f"in step {step} {what}. All ranks dropped this step's gradients{advice}"), ranks
    )
    return averages.logged(error) if action == "raise" else SystemExit(str(error))
