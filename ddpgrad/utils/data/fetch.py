"""Fetch a batch from a dataset, in the program's process or in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .collate import default_collate
from .dataset import IterableDataset, StackDataset, Subset, batch_reader, read_samples
from .sampler import BatchSampler

Read = Callable[[Any], Any]
Watch = Callable[[Any], None]


@dataclass(frozen=True)
class Recipe:
    """What a loader does with its dataset.

    batched: elements of the order are lists of indices, not single ones. batch_size, drop_last: of an
    iterable dataset; None for single samples.
    """

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    batch_size: int | None
    drop_last: bool

    @property
    def iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def elements(self) -> Iterator[Any]:
        """The (lists of) samples of an iterable dataset, from its beginning."""
        if self.batch_size is None:
            return iter(self.dataset)
        return iter(BatchSampler(self.dataset, self.batch_size, self.drop_last))

    def reader(self, base_seed: int | None, watch: Watch | None = None) -> Read:
        """What turns an element of the order into a batch.

        base_seed: seed the global generators for every sample. watch: told of every index before it is read,
        and None when all samples of a batch are.
        """
        dataset, collate = self.dataset, self.collate
        if self.iterable:
            return collate
        if self.batched and collate is default_collate and (whole := batch_reader(dataset)) is not None:
            return whole  # an indexing of tensors draws no numbers, and does not fail at a sample

        def begin(index: Any) -> None:
            if watch is not None:
                watch(index)
            if base_seed is not None:
                from .seeding import seed_sample  # which few programs in one process need

                seed_sample(base_seed, index)

        def sample(index: Any) -> Any:
            begin(index)
            return dataset[index]

        def one_by_one(indices: Any) -> list[Any]:
            return [sample(index) for index in indices]

        def together(indices: Any) -> list[Any]:
            begin(indices[0])
            return read_samples(dataset, indices)

        if not self.batched:
            samples = sample
        else:
            samples = together if _reads_together(dataset) else one_by_one
        if watch is None:
            return lambda work: collate(samples(work))

        def watched(work: Any) -> Any:
            found = samples(work)
            watch(None)
            return collate(found)

        return watched


def _reads_together(dataset: Any) -> bool:
    """True when a batch goes to a `__getitems__` that the dataset itself defines.

    Those of Subset and StackDataset read sample by sample where the inner datasets do; so can we, and know which.
    """
    together = getattr(type(dataset), "__getitems__", None)
    if together is Subset.__getitems__:
        return _reads_together(dataset.dataset)
    if together is StackDataset.__getitems__:
        return any(_reads_together(inner) for inner in dataset.parts())
    return callable(getattr(dataset, "__getitems__", None))
