"""Errors of a backward pass that used parameters otherwise than it was to."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING
from weakref import ref

from ...core.errors import DistributedError, warn_program

if TYPE_CHECKING:
    from ...autograd.accumulate import AccumulateGrad
    from .reducer import Reducer

_UNFINISHED = "Expected to have finished reduction in the prior iteration before starting a new one. "


def unused_modules(names: Iterable[str], unused: Iterable[str]) -> list[str]:
    """The paths of the outermost modules none of whose parameters was used. names: of all parameters, with their paths."""
    used = {path for name in {*names} - {*unused} for path in _above(name)}
    found = [next((path for path in _above(name) if path not in used), "") for name in unused]
    return [path for path in dict.fromkeys(found) if path]


def _above(name: str) -> list[str]:
    """The paths of the modules that a parameter is in, the outermost first."""
    parts = name.split(".")[:-1]
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


def advice(names: Iterable[str], unused: Sequence[str]) -> str:
    """What to do about `unused`, with the modules that nothing used."""
    modules = ", ".join(f"'{path}'" for path in unused_modules(names, unused)[:8])
    reached = f" (nothing of {modules} was used)" if modules else ""
    return f"Let forward and the loss use them{reached}, or call requires_grad_(False) on them before the model is wrapped."


def use_error(reducer: Reducer, unused: Sequence[int]) -> DistributedError:
    """What to raise where `unused` got no gradient, or, if there are none, the static graph has changed."""
    return DistributedError(_unused(reducer, unused) if unused else _changed(reducer))


def second_gradient(name: str) -> DistributedError:
    """What to raise where the gradient of parameter `name` arrives a second time."""
    return DistributedError(
        f"parameter '{name}' got a second gradient in one backward, after it was handed over. A part of the model "
        "that is checkpointed or used again needs one backward for all of it."
    )


def warn_of_lost_graph(name: str) -> None:
    """Warn, as PyTorch does, where backward(create_graph=True) has come to parameter `name`."""
    warn_program(
        f"the gradient of parameter '{name}' has a graph of its own (create_graph=True), which an average over the ranks has not: "
        "what is computed from .grad adds nothing to a loss. Take the first gradients by torch.autograd.grad(loss, inputs, "
        "create_graph=True), and call backward() once for the loss and what is computed from them."
    )


def warn_when_gone(accumulators: Iterable[AccumulateGrad]) -> None:
    """Warn at the first gradient of a graph that has outlived its DistributedDataParallel, which was to average it."""

    def told() -> None:
        for one in held:
            if (node := one()) is not None:
                node.filled = None
        warnings.warn(
            "a DistributedDataParallel was freed after its forward, and before the backward that runs: its gradients are this "
            "rank's own, not averaged over the ranks. Keep the DistributedDataParallel, as in a variable, until backward has ended.",
            RuntimeWarning,
            stacklevel=2,
        )

    # The caller's list, the loop and the argument itself refer to a node; what else does is a graph.
    held: list[ref[AccumulateGrad]] = []
    for node in accumulators:
        if getrefcount(node) > 3 and node.filled is None:
            held.append(ref(node))
            node.filled = told


def cut_short(rank: int) -> DistributedError:
    """What to raise in the forward of `rank` after a backward that raised."""
    return DistributedError(
        f"rank {rank}: the last backward did not run to its end (it raised); gradients of the ranks may differ. Restart "
        "from a checkpoint, or zero the gradients and wrap the model again."
    )


def _changed(reducer: Reducer) -> str:
    expected = (reducer.static and reducer.static.used) or frozenset()
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
    """The error for a backward that left parameters `unused` without a gradient."""
    names, parameters = reducer.names, reducer.parameters
    missing = [names[i] for i in unused]
    shown = ", ".join(f"'{name}'" for name in missing[:8])
    more = f" and {len(unused) - 8} more" if len(unused) > 8 else ""
    cause = f"Either the forward pass did not use them, or the loss does not depend on them. {advice(names, missing)}"
    if not all(parameters[i].requires_grad for i in unused):
        cause = "Their requires_grad was turned off after the model was wrapped: wrap it again."
    elif not all(map(reducer.hears, unused)):
        cause = "A DistributedDataParallel that was made later has some of them, too, and averages them: wrap one module that has both."
    return (
        f"rank {reducer.communicator.rank}: backward ended, but {len(unused)} of {len(parameters)} parameters got "
        f"no gradient: {shown}{more}. {cause} If that is meant, wrap with "
        "DistributedDataParallel(model, find_unused_parameters=True)."
    )
