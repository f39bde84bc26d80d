"""DistributedSampler: every rank reads its own share of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np

from ...core.errors import CheckpointError
from ...random import Generator
from .sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index from `rank` on, after a permutation of seed + epoch that all ranks share.

    All ranks read the same number of samples: the order is continued from its own head,
    or cut where drop_last is True. The order is PyTorch's. even=False: instead every sample is read once, as an evaluation
    wants it, and ranks differ by up to one sample (times `accumulate`); with fewer samples than ranks some have none.

    The epoch is set by the DataLoader that reads from this sampler, so forgetting
    `set_epoch` does no harm; once the program calls `set_epoch`, only the program sets it.

    accumulate: how many micro-batches of `DistributedDataParallel.accumulate` a rank's batch is dealt to. Each of them then
    has the samples of one of accumulate x num_replicas ranks, however many ranks there are.
    num_replicas, rank: by default those of the default process group; ValueError without one, as in PyTorch.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        accumulate: int = 1,
        even: bool = True,
    ) -> None:
        if not even and drop_last:
            raise ValueError(
                "DistributedSampler: even=False reads every sample, and drop_last leaves some out; give one"
            )
        if accumulate < 1:
            raise ValueError(f"DistributedSampler: accumulate must be at least 1, got {accumulate}")
        if num_replicas is None or rank is None:
            from ... import distributed

            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.even = even
        self.epoch = 0
        self._offset = 0  # of the order: what is before was read by all ranks in an earlier run
        self._set_by_program = False
        self.accumulate = accumulate
        self.num_samples = self._share(len(dataset))
        self.total_size = self.num_samples * num_replicas if even else len(dataset)

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            order = Generator().manual_seed(self.seed + self.epoch).permutation(n)
        else:
            order = np.arange(n)
        left = max(n - self._offset, 0)
        total = self._share(left) * self.num_replicas if self.even else left
        # Past its end the order continues from its own head.
        order = order.take(range(self._offset, self._offset + total), mode="wrap")
        mine = np.arange(total) // self.accumulate % self.num_replicas == self.rank
        return iter(order[mine].tolist())

    def _share(self, samples: int) -> int:
        """How many of `samples` this rank reads."""
        whole, rest = divmod(samples, self.num_replicas * self.accumulate)
        if not self.even:
            return whole * self.accumulate + min(max(rest - self.rank * self.accumulate, 0), self.accumulate)
        return (whole + bool(rest and not self.drop_last)) * self.accumulate

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation; from now on the DataLoader leaves it alone."""
        if epoch != self.epoch:
            self._offset = 0
        self.epoch = epoch
        self._set_by_program = True

    def follow_epoch(self, epoch: int) -> None:
        """Begin an epoch, with its permutation unless the program sets it: called by the DataLoader every time."""
        self._offset = 0
        if not self._set_by_program:
            self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and what decides the order; the same on every rank."""
        return {
            "epoch": self.epoch,
            "offset": self._offset,
            "num_replicas": self.num_replicas,
            "accumulate": self.accumulate,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "drop_last": self.drop_last,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`; CheckpointError if it was made with another order."""
        self._load(state_dict, ("num_replicas", "accumulate", "shuffle", "seed", "drop_last"))

    def continue_after(self, state_dict: dict[str, Any], samples: int) -> None:
        """Continue after each of the ranks that made `state_dict`, of any number, has read `samples` samples.

        What none of them has read is dealt to the ranks of now. CheckpointError for another order.
        """
        self._load(state_dict, ("shuffle", "seed"))
        self._offset += samples * state_dict["num_replicas"]

    def _load(self, state_dict: dict[str, Any], decisive: Iterable[str]) -> None:
        here = self.state_dict()
        for name in decisive:
            if state_dict[name] != here[name]:
                raise CheckpointError(
                    f"the saved sampler does not fit this one: {name} was {state_dict[name]!r} and is "
                    f"{here[name]!r}. Start with the same {name} to continue exactly"
                )
        self.epoch, self._offset = state_dict["epoch"], state_dict["offset"]
