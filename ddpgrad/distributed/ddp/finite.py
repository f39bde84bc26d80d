"""Find the rank whose gradients stopped being finite first.

Averaging spreads one rank's NaN to all ranks, and the next step makes every rank's own gradients
NaN: afterwards nobody can tell whose fault it was. So each rank looks at its buckets before they
are averaged. Overflow is nothing bad under a GradScaler, which skips such a step; so a rank only
remembers where the present unbroken run of steps without finite gradients began. The check of the
replicas asks for that when it meets a parameter that is NaN. At the end of a program, when no rank can ask
another, it is known from one thing more: whether the rank's parameters were finite when its gradients were not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


class FiniteWatch:
    """Watches the gradients of one rank.

    since: the step (counted in backward passes, from 1) and the parameter where the run of
    steps without finite gradients began that goes on now; None while they are finite.
    inherited: whether parameters were not finite then, so that the gradients could not be.
    steps: how many backward passes have ended.
    enabled: False where nobody will ask. parameters_are_finite: how to find out.
    """

    __slots__ = ("_found", "enabled", "inherited", "parameters_are_finite", "since", "steps")

    def __init__(self) -> None:
        self.enabled = True
        self.since: tuple[int, str] | None = None
        self.inherited = False
        self.steps = 0
        self.parameters_are_finite: Callable[[], bool] = lambda: True
        self._found: str | None = None

    def look(self, flat: Any, gradients: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        """Note it if the bucket `flat`, which holds the named `gradients`, is not finite."""
        if self.enabled and self._found is None and not _surely_finite(flat):
            self._found = next((name for name, g in gradients() if not np.isfinite(g).all()), None)

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
