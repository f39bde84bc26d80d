"""Uneven inputs: a rank without batches takes part in the others' steps with gradients of zero.

Before each step the ranks tell one another who still has a batch. Source of the idea and of the
arguments: https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .data_parallel import DistributedDataParallel


class Joining:
    """The ranks of `model` that said last that they still have batches; `first` is the least of them."""

    def __init__(self, model: DistributedDataParallel, divide_by_all: bool, throws: bool) -> None:
        self._model, self._divide_by_all, self._throws = model, divide_by_all, throws
        self._communicator = model.process_group.communicator
        self.active = list(range(self._communicator.size))

    @property
    def first(self) -> int:
        return self.active[0]

    def step(self, has_batch: bool) -> bool:
        """Say whether this rank has a batch, and hear it of all; False when none has. Collective."""
        size = self._communicator.size
        present = np.zeros(size, np.uint8)
        present[self._communicator.rank] = has_batch
        self._communicator.all_reduce(present, "max", "which ranks still have batches")
        if not present.any():
            return False
        self.active = np.flatnonzero(present).tolist()
        if self._throws and len(self.active) < size:
            gone = sorted(set(range(size)) - set(self.active))
            raise RuntimeError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks. "
                + " ".join(f"Rank {rank} exhausted all inputs." for rank in gone)
            )
        self._model.reducer.scale = 1.0 if self._divide_by_all else size / len(self.active)
        self._model.reducer.weighted().expected = len(self.active)
        return True

    def shadow(self) -> None:
        """Be there for the steps of the others, until no rank has a batch."""
        while self.step(has_batch=False):
            self._model._share_buffers()
            self._model.reducer.shadow()


@contextmanager
def joining(
    model: DistributedDataParallel, divide_by_initial_world_size: bool, throw_on_early_termination: bool
) -> Iterator[None]:
    """What `DistributedDataParallel.join` does while it is enabled."""
    joined = model.joined = Joining(model, divide_by_initial_world_size, throw_on_early_termination)
    try:
        yield
        joined.shadow()
        model._share_all(joined.active[-1])
    finally:
        model.joined = None
        model.reducer.scale = 1.0
        model.reducer.weighted().expected = None
