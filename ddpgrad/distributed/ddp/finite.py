"""Find the rank whose gradients stopped being finite first.

Averaging spreads one rank's NaN to all ranks, and the next step makes every rank's own gradients
NaN: afterwards nobody can tell whose fault it was. So each rank looks at its buckets before they
are averaged. Overflow is nothing bad under a GradScaler, which skips such a step; so a rank only
remembers where the present unbroken run of steps without finite gradients began. The check of the
replicas asks for that when it meets a parameter that is NaN. At the end of a program, when no rank can ask
another, it is known from one thing more: whether the rank's parameters were finite when its gradients were not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import DistributedError
from ..protocol.guard import blaming

if TYPE_CHECKING:
    from .reducer import Reducer

ACTIONS = ("skip", "stop", "raise")
"""What all ranks do in a step whose averaged gradients are not finite."""

ADVICE = (
    ". Look at that rank's data and loss in that step; autograd.set_detect_anomaly(True) finds the operation."
)
_log = logging.getLogger("ddpgrad.distributed")


def refuse_action(action: str | None) -> None:
    """Raise for what is none of `ACTIONS`, nor None."""
    if action not in (None, *ACTIONS):
        raise ValueError(
            f"DistributedDataParallel: nonfinite_gradients must be one of {ACTIONS}, or None; got {action!r}"
        )


class FiniteWatch:
    """Watches the gradients of one rank.

    since: the step (counted in backward passes, from 1) and the parameter where the run of
    steps without finite gradients began that goes on now; None while they are finite.
    inherited: whether parameters were not finite then, so that the gradients could not be.
    steps: how many backward passes have ended.
    enabled: whether somebody will ask. parameters_are_finite: how to find out.
    """

    __slots__ = ("_found", "enabled", "inherited", "parameters_are_finite", "since", "steps")

    def __init__(self) -> None:
        self.enabled = False
        self.since: tuple[int, str] | None = None
        self.inherited = False
        self.steps = 0
        self.parameters_are_finite: Callable[[], bool] = lambda: True
        self._found: str | None = None

    def look(self, flat: Any, gradients: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        """Note it if the bucket `flat`, which holds the named `gradients`, is not finite."""
        if self.enabled and self._found is None and not _surely_finite(flat):
            self._found = next((name for name, g in gradients() if not np.isfinite(g).all()), None)

    @property
    def found(self) -> str:
        """The first parameter whose gradient is not finite in the pass that runs; "" if there is none."""
        return self._found or ""

    def step(self, number: int) -> None:
        """Backward number `number` has ended."""
        self.steps = number
        if self._found is None:
            self.since = None
        elif self.since is None:
            self.since = number, self._found
            self.inherited = not self.parameters_are_finite()
        self._found = None


def _surely_finite(flat: Any) -> bool:
    """False if an element may be infinite or NaN. One pass at the speed of memory."""
    if flat.dtype.kind == "f" and flat.dtype.itemsize >= 4:
        # Squares of huge numbers overflow too: who asks looks again.
        return bool(np.isfinite(np.dot(flat, flat)))
    return bool(np.isfinite(flat).all())


def settle(reducer: Reducer, action: str) -> BaseException | None:
    """Drop the averaged gradients where they are not finite, on all ranks, and return what is to be raised.

    Averages are the same on all ranks, and so is what each finds: only then are ranks asked whose gradients it was.
    """
    c, parameters = reducer.communicator, reducer.parameters
    spoiled = not all(_surely_finite(b.flat) or bool(np.isfinite(b.flat).all()) for b in reducer.buckets)
    if reducer.sparse or reducer.hook is not None:  # results that a rank may have for itself
        told = np.array([spoiled], np.uint8)
        c.all_reduce(told, "max", "whether gradients are finite")
        spoiled = bool(told[0])
    if not spoiled:
        return None
    names = c.all_gather_object(reducer.finite.found)
    for parameter in parameters:
        parameter._grad = None
    ranks = [rank for rank, name in enumerate(names) if name]
    step = reducer.steps + 1
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
    return reducer.logged(error) if action == "raise" else SystemExit(str(error))
