"""From an element of the order to a batch: the same in the program's process and in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .collate import default_collate
from .dataset import IterableDataset, StackDataset, Subset, batch_reader, read_samples
from .sampler import BatchSampler
from .seeding import seed_sample

Read = Callable[[Any], Any]


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

    def reader(self, base_seed: int | None, watch: Callable[[Any], None] | None = None) -> Read:
        """What turns an element of the order into a batch.

        base_seed: seed the global generators for every sample. watch: told of every index before it is read.
        """
        dataset, collate = self.dataset, self.collate
        if self.iterable:
            return collate
        sample = _observed(dataset, base_seed, watch)
        if not self.batched:
            return lambda index: collate(sample(index))
        if (whole := batch_reader(dataset) if collate is default_collate else None) is not None:
            return whole  # an indexing of tensors draws no numbers, and does not fail at a sample
        if _reads_together(dataset, seeded=base_seed is not None):
            return lambda indices: collate(_together(dataset, indices, base_seed, watch))
        return lambda indices: collate([sample(index) for index in indices])


def _observed(dataset: Any, base_seed: int | None, watch: Callable[[Any], None] | None) -> Read:
    """`dataset[index]`, after what `Recipe.reader` promises for every sample."""
    if base_seed is None and watch is None:
        return dataset.__getitem__

    def read(index: Any) -> Any:
        if watch is not None:
            watch(index)
        if base_seed is not None:
            seed_sample(base_seed, index)
        return dataset[index]

    return read


def _reads_together(dataset: Any, seeded: bool) -> bool:
    """True when a batch goes to the dataset's own `__getitems__`.

    Those of Subset and StackDataset read sample by sample where the inner datasets do; so can we, with seeds.
    """
    together = getattr(type(dataset), "__getitems__", None)
    if seeded and together is Subset.__getitems__:
        return _reads_together(dataset.dataset, seeded)
    if seeded and together is StackDataset.__getitems__:
        return any(_reads_together(inner, seeded) for inner in dataset.parts())
    return callable(getattr(dataset, "__getitems__", None))


def _together(dataset: Any, indices: Any, base_seed: int | None, watch: Callable[[Any], None] | None) -> Any:
    """A batch by `__getitems__`: one seed for all of it, that of its first sample."""
    if watch is not None:
        watch(indices[0])
    if base_seed is not None:
        seed_sample(base_seed, indices[0])
    return read_samples(dataset, indices)
