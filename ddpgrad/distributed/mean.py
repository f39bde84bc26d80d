"""`Mean`: a metric over the samples of all ranks, whichever rank has how many."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import DistributedError
from ..core.modes import mode
from ..core.tensor import Tensor
from .process_group import ProcessGroup, resolve


class Mean:
    """sum(w v) / sum(w) over all values v with weights w that the ranks have given it.

        loss = Mean()
        for x, y in loader:
            loss.update(F.cross_entropy(model(x), y), len(y))
        print(loss.compute())       # the same on all ranks, also where one had no batch

    Sums are made in float64: each rank's in the order of its calls, those of the ranks along the tree of all sums. So the
    bits depend on the number of ranks and not on that of processes, and but for rounding the mean is that of one process
    with all samples. A batch that only stands in for a missing one (see `launcher.prepare`) counts as nothing.
    """

    def __init__(self, group: ProcessGroup | None = None) -> None:
        self._group = group
        self.reset()

    def reset(self) -> None:
        """Forget all values."""
        self._sums = np.zeros(2)  # of w v, and of w

    def update(self, value: float | Tensor, weight: float | Tensor = 1.0) -> Mean:
        """Add `value`, or the elements of a tensor, with one weight or one for each element. Not collective.

        What has weight 0 counts as nothing, NaN too. ValueError for a negative or infinite weight, and another shape.
        """
        values, weights = _array(value), _array(weight)
        if weights.shape not in ((), values.shape):
            raise ValueError(
                f"Mean.update(): expected one weight, or weights of the values' shape {list(values.shape)}, got shape "
                f"{list(weights.shape)}"
            )
        wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
        if wrong.size:
            raise ValueError(
                f"Mean.update(): expected finite weights that are not negative, got {wrong.flat[0]}"
            )
        if not (mode.stand_in and mode.enabled):
            weights = np.broadcast_to(weights, values.shape)
            weighted = np.multiply(values, weights, out=np.zeros(values.shape), where=weights != 0)
            self._sums += (weighted.sum(), weights.sum())
        return self

    def compute(self) -> float:
        """The mean over the values of all ranks, the same on all. Collective. DistributedError where the weights sum to 0."""
        sums = self._sums.copy()
        resolve(self._group).communicator.all_reduce(sums, "sum", "weighted sum and weights of a Mean")
        total, weight = sums.tolist()
        if not weight:
            raise DistributedError(
                "Mean.compute(): the weights of all ranks sum to 0, and the mean over nothing is undefined: was the loader "
                "empty, or update() never called?"
            )
        return total / weight


def _array(number: Any) -> np.ndarray:
    return np.asarray(number.numpy(force=True) if isinstance(number, Tensor) else number, np.float64)
