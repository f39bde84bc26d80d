"""Makes a training loop for one rank one for many: the model averaged, the loaders sharded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ddpgrad import distributed, nn
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)


def wrap(model: nn.Module, *loaders: DataLoader[Any], **ddp_options: Any) -> tuple[Any, ...]:
    """Meet the other ranks; `model` in DistributedDataParallel, then each loader as `prepare` returns it.

    A loop over batches needs nothing else:

        model, loader = launcher.wrap(model, loader)
        for x, y in loader:
            loss_fn(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    if not distributed.is_initialized():
        distributed.init_process_group()
    return DistributedDataParallel(model, **ddp_options), *(prepare(loader) for loader in loaders)


def prepare(loader: DataLoader[Any], seed: int = 0) -> DataLoader[Any]:
    """`loader` for this rank: batches of the same size, from this rank's share of the samples.

    A shuffled order is a permutation of `seed` and the epoch that all ranks share. The ranks read
    equally many samples, for which the order is continued from its own head where it does not
    come out even (`drop_last=True` cuts it instead). An iterable dataset is dealt out in turn, and the
    ranks may get different numbers of batches. ValueError for a sampler of another kind.
    """
    if not distributed.is_initialized():
        raise ValueError("prepare: call init_process_group() first, or use launcher.wrap")
    if distributed.get_world_size() == 1 or isinstance(loader.sampler, DistributedSampler):
        return loader
    dataset: Any = loader.dataset
    options: dict[str, Any] = {name: getattr(loader, name) for name in _KEPT}
    if loader.num_workers:
        options |= {name: getattr(loader, name) for name in _KEPT_OF_WORKERS}
    if isinstance(dataset, IterableDataset):
        return DataLoader(_Dealt(dataset), **options)
    if not isinstance(loader.sampler, (RandomSampler, SequentialSampler)) or loader.batch_size is None:
        raise ValueError(
            f"prepare: a DataLoader with {type(loader.sampler).__name__} and batch_size={loader.batch_size} has an "
            "order of its own; let its sampler yield this rank's share"
        )
    shuffle = isinstance(loader.sampler, RandomSampler)
    sampler = DistributedSampler(dataset, shuffle=shuffle, seed=seed, drop_last=loader.drop_last)
    return DataLoader(dataset, sampler=sampler, **options)


_KEPT = ("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn")
_KEPT_OF_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")


class _Dealt(IterableDataset[Any]):
    """Every world_size-th sample of a stream, from this rank's first on."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.rank, self.ranks = distributed.get_rank(), distributed.get_world_size()

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self.stream), self.rank, None, self.ranks)
