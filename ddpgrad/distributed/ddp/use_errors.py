"""Errors of a backward pass that used parameters otherwise than it was to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.errors import DistributedError

if TYPE_CHECKING:
    from .reducer import Reducer

_UNFINISHED = "Expected to have finished reduction in the prior iteration before starting a new one. "


def use_error(reducer: Reducer, unused: Sequence[int]) -> DistributedError:
    """What to raise where `unused` got no gradient, or, if there are none, the static graph has changed."""
    return DistributedError(_unused(reducer, unused) if unused else _changed(reducer))


def second_gradient(name: str) -> DistributedError:
    """What to raise where the gradient of parameter `name` arrives a second time."""
    return DistributedError(
        f"parameter '{name}' got a second gradient in one backward, after it was handed over. A part of the model "
        "that is checkpointed or used again needs one backward for all of it."
    )


def cut_short(rank: int) -> DistributedError:
    """What to raise in the forward of `rank` after a backward that raised."""
    return DistributedError(
        f"rank {rank}: the last backward did not run to its end (it raised); gradients of the ranks may differ. Restart "
        "from a checkpoint, or zero the gradients and wrap the model again."
    )


def _changed(reducer: Reducer) -> str:
    expected = reducer.expected or frozenset()
    new, gone = sorted(reducer.used - expected), sorted(expected - reducer.used)
    what = "one parameter is unused in first iteration, but then got used in the second iteration"
    if gone:
        what = "one parameter is used in first iteration, but then got unused in the second iteration"
    named = ", ".join(f"'{reducer.names[i]}'" for i in gone or new)
    indices = (
        f"\nParameter indices which did not receive grad for rank {reducer.communicator.rank}: {gone}"
        if gone
        else ""
    )
    return (
        f"{_UNFINISHED if gone else ''}Your training graph has changed in this iteration, e.g., {what}. This is not "
        f"compatible with static_graph set to True: {named}.{indices}"
    )


def _unused(reducer: Reducer, unused: Sequence[int]) -> str:
    shown = ", ".join(f"'{reducer.names[i]}'" for i in unused[:8])
    more = f" and {len(unused) - 8} more" if len(unused) > 8 else ""
    cause = "Either the forward pass did not use them, or the loss does not depend on them."
    if not all(reducer.parameters[i].requires_grad for i in unused):
        cause = "Their requires_grad was turned off after the model was wrapped: wrap it again."
    return (
        f"rank {reducer.communicator.rank}: backward ended, but {len(unused)} of {len(reducer.parameters)} parameters got "
        f"no gradient: {shown}{more}. {cause} If that is meant, wrap with "
        "DistributedDataParallel(model, find_unused_parameters=True)."
    )
