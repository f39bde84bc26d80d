"""Weighted means: the gradient is sum(w g) / sum(w) over all batches of all ranks since the last average.

Each batch's gradients are multiplied by its weight on their way into `.grad`, so that they add up under `no_sync`; the ranks
average these sums as ever, and the average is multiplied by ranks / sum(w).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import DistributedError
from ...core.modes import mode
from ...core.tensor import Tensor
from ...ops.creation.factories import zeros_like
from .averages import Averages, has_gradient


class LossWeights:
    """The weights of one rank's batches.

    current: of the batch whose backward comes next; None: gradients stay as they are. total: of the batches since the
    last average. expected: how many ranks have a batch, where ranks without one may not know of weights (`join`).
    """

    def __init__(self) -> None:
        self.current: float | None = None
        self.total = 0.0
        self.expected: int | None = None
        self._attached = False

    def attach(self, averages: Averages) -> None:
        """Multiply what comes to the parameters; hooks are those of `averages`, and do not keep it alive."""
        if not self._attached:
            self._attached = True
            for i, node in enumerate(averages.accumulators):
                about = i, averages.names[i], averages.owners[i], averages.used
                averages.hooks.append(node.register_prehook(partial(self._weighted, *about)))

    def _weighted(
        self, i: int, name: str, owner: Tensor, used: Collection[int], grads: tuple[Any, ...]
    ) -> tuple[Any, ...] | None:
        if self.current is None:
            return None
        if i not in used and has_gradient(owner):
            raise DistributedError(
                f"loss_weight: parameter '{name}' has the average of earlier batches in its .grad, which no weight fits: call "
                "zero_grad() after each average, and let batches add up within no_sync()"
            )
        # A mean over nothing is NaN, which counts as nothing.
        return tuple(g if g is None else g * self.current if self.current else zeros_like(g) for g in grads)

    def add(self, n: float | Tensor) -> None:
        """The next batch has weight `n`."""
        weight = 0.0 if mode.stand_in else float(n)
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"loss_weight: expected a finite number that is not negative, got {weight}")
        self.current = weight
        self.total += weight

    def end(self) -> None:
        """The backward of the weighted loss has ended."""
        self.current = None

    def take(self, averages: Averages) -> float | None:
        """What the averages are to be multiplied by; None where no rank gave weights. Collective if one may have."""
        if self.current is None and self.expected is None:
            return None
        told = np.array([self.total, self.current is not None], np.float64)
        self.total = 0.0
        averages.communicator.all_reduce(told, "sum", "weights of losses")
        total, users = told.tolist()
        if self.expected is not None and users not in (0, self.expected):
            raise averages.logged(
                DistributedError(
                    f"loss_weight was called on {users:.0f} of the {self.expected} ranks that have a batch: call it on all"
                )
            )
        if users and not total:
            raise averages.logged(
                DistributedError(
                    "loss_weight: the weights of all ranks' batches sum to 0, and the mean over nothing is undefined: leave out "
                    "this step on all ranks, as ddpgrad.distributed.agree(n > 0) tells beforehand"
                )
            )
        return averages.communicator.size / total if users else None
