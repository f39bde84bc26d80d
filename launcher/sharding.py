"""Deals the samples of a loader to any number of ranks, each sample exactly once an epoch."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpgrad import is_grad_enabled, nn
from ddpgrad.core.errors import CheckpointError
from ddpgrad.core.modes import mode
from ddpgrad.random import Generator, rank_generator
from ddpgrad.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

from .checkpoint import generators


class ShardedSampler(DistributedSampler):
    """Every `num_replicas`-th element from `rank` on of what `source` yields: indices, or whole batches of them.

    The order is that of one rank alone: `source` draws it after the generators were seeded by seed and epoch;
    a plain RandomSampler has the permutation of a DistributedSampler. It is the same on all ranks and for
    every number of ranks, and so is a position in it (`continue_after`).

    Ranks get equally many batches of `batch_size`, of which the last ones may differ by a sample. Where that
    is not possible, since the last batch has fewer samples than there are ranks, the ranks without one
    get a sample that stands in (`even`), or a batch less. drop_last: that batch is left out on all ranks.
    stands_in: the number of the batch in this epoch that stands in, from 1; 0 if none does.
    """

    stands_in = 0

    def __init__(
        self, source: Any, batch_size: int, rank: int, ranks: int, *, seed: int, drop_last: bool, even: bool
    ) -> None:
        super().__init__(source, ranks, rank, shuffle=False, seed=seed, drop_last=drop_last)
        self.source = source
        self.share = batch_size
        self.even = even

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        left = order[self._offset :]
        length = self._length(len(left))
        take = left[self.rank :: self.num_replicas][:length]
        self.stands_in = 0
        if len(take) < length:
            take.append(order[self.rank % len(order)])
            self.stands_in = -(-length // self.share)
        return iter(take)

    def __len__(self) -> int:
        return self._length(len(self.source))

    def _length(self, samples: int) -> int:
        """This rank's share of `samples` remaining ones."""
        ranks = self.num_replicas
        if self.drop_last:
            return samples // (self.share * ranks) * self.share
        longest = -(-samples // ranks)
        mine = (samples - self.rank + ranks - 1) // ranks
        # A rank without any sample of the last batch would miss a step.
        return longest if self.even and mine < longest and mine % self.share == 0 else mine

    def _order(self) -> list[Any]:
        key = self.seed + self.epoch
        plain = isinstance(self.source, RandomSampler) and not self.source.replacement
        if plain and self.source.num_samples == len(self.source.data_source):
            return Generator().manual_seed(key).permutation(len(self.source)).tolist()
        state = generators.states()
        inner = getattr(self.source, "sampler", None)  # of a BatchSampler
        own = [g for s in (self.source, inner) if isinstance(g := getattr(s, "generator", None), Generator)]
        kept = [generator.get_state() for generator in own]
        try:
            for generator in (rank_generator(), *own):
                generator.manual_seed(key)
            random.seed(key)
            np.random.seed(key % (1 << 32))
            return list(self.source)
        finally:
            generators.restore(state)
            for generator, before in zip(own, kept, strict=True):
                generator.set_state(before)


@dataclass(frozen=True)
class StandIn:
    """A sample of a stream, or the batch made of it, that another rank has as its own."""

    content: Any

    def pin_memory(self) -> StandIn:
        from ddpgrad.utils.data.pinning import pin_memory  # here, as it needs a GPU

        return StandIn(pin_memory(self.content))


@dataclass(frozen=True)
class CollateStream:
    """`collate` for a ShardedStream: what stands in, always alone in its batch, is made into a StandIn."""

    collate: Callable[[Any], Any]

    def __call__(self, samples: Any) -> Any:
        if isinstance(samples, StandIn):
            return StandIn(self.collate(samples.content))
        if isinstance(samples, list) and samples and isinstance(samples[0], StandIn):
            return StandIn(self.collate([samples[0].content]))
        return self.collate(samples)


class DealtLoader(DataLoader[Any]):
    """A loader over a ShardedSampler or ShardedStream, which hands out what stands in where `models` are trained.

    That is where gradients are recorded and, if `models` are known, one is in training mode. While the loop has it,
    `backward` begins with zeros. Elsewhere the loop ends before it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.models: Sequence[nn.Module] = ()

    def __iter__(self) -> Iterator[Any]:
        return self._marked(super().__iter__())

    def _marked(self, batches: Iterator[Any]) -> Iterator[Any]:
        source: Any = self._stateful_sampler()
        for batch in batches:
            stands_in = isinstance(batch, StandIn) or self._batches == getattr(source, "stands_in", 0)
            if stands_in and not (
                is_grad_enabled() and (not self.models or any(m.training for m in self.models))
            ):
                continue
            before, mode.stand_in = mode.stand_in, stands_in
            try:
                yield batch.content if isinstance(batch, StandIn) else batch
            finally:  # also where the loop is left within it
                mode.stand_in = before


class ShardedStream(IterableDataset[Any]):
    """Every rank's share of `stream`, which all ranks read: its samples are dealt out in turn.

    With workers `stream` gives each worker its part, as ever. Batches are as even as a ShardedSampler's.
    """

    def __init__(
        self,
        stream: Iterable[Any],
        batch_size: int,
        rank: int,
        ranks: int,
        *,
        workers: int,
        drop_last: bool,
        even: bool,
    ) -> None:
        self.stream = stream
        self.share, self.rank, self.num_replicas = batch_size, rank, ranks
        self.workers, self.drop_last, self.even = workers, drop_last, even
        self._offset = 0  # samples that all ranks read in an earlier run

    def __iter__(self) -> Iterator[Any]:
        samples = iter(self.stream)
        next(itertools.islice(samples, self._offset, self._offset), None)
        for count in itertools.count():
            group = list(itertools.islice(samples, self.num_replicas))
            if self.rank < len(group) and (len(group) == self.num_replicas or not self.drop_last):
                yield group[self.rank]
            elif group and self.even and not self.drop_last and count % self.share == 0:
                yield StandIn(group[self.rank % len(group)])
            if len(group) < self.num_replicas:
                return

    def follow_epoch(self, epoch: int) -> None:
        """Begin an epoch: called by the DataLoader."""
        self._offset = 0

    def state_dict(self) -> dict[str, Any]:
        """The state that decides the order; the same on every rank."""
        return {"offset": self._offset, "num_replicas": self.num_replicas}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._offset = state_dict["offset"]

    def continue_after(self, state_dict: dict[str, Any], samples: int) -> None:
        """Continue after each of the ranks that made `state_dict`, of any number, has read `samples` samples."""
        if self.workers:
            raise CheckpointError(
                f"a stream that {self.workers} workers read goes on only on as many ranks as before, "
                f"{state_dict['num_replicas']}: which samples each worker had read is not known. Use num_workers=0, "
                "or a dataset with indices"
            )
        self._offset = state_dict["offset"] + samples * state_dict["num_replicas"]
