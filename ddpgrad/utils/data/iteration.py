"""One pass over a DataLoader: its order, and batches that are read when they are asked for."""

from __future__ import annotations

import itertools
import warnings
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core import spans
from .arguments import can_pin
from .fetch import Recipe

if TYPE_CHECKING:
    from .dataloader import DataLoader


class Order(Iterator[Any]):
    """The elements of an epoch's order: lists of indices, or what stands for them; it counts the drawn ones.

    ahead: elements that were drawn before and come first.
    """

    def __init__(self, elements: Iterator[Any]) -> None:
        self._elements = elements
        self._ahead: deque[Any] = deque()
        self.drawn = 0

    def __next__(self) -> Any:
        if self._ahead:
            return self._ahead.popleft()
        element = next(self._elements)
        self.drawn += 1
        return element

    def skip(self, count: int, drawn: int) -> int:
        """Go on after `count` elements of which `drawn` were drawn; how many of the `count` there are."""
        skipped = 0
        for position, element in enumerate(itertools.islice(self._elements, drawn)):
            self.drawn += 1
            if position < count:
                skipped += 1
            else:
                self._ahead.append(element)
        return skipped


class Batches(Iterator[Any]):
    """One iteration over a loader, which it tells how far it got."""

    def __init__(self, loader: DataLoader[Any], order: Order) -> None:
        self.loader = loader
        self.order = order
        self._yielded = 0
        self._pins = loader.pin_memory and can_pin()
        self._promised = loader.promised_length()

    def __next__(self) -> Any:
        loader = self.loader
        began = spans.now() if spans.recorders else 0.0
        try:
            batch = self._next_batch()
        except StopIteration:
            loader.ended(self)
            raise
        loader.advanced(self)
        if self._pins:
            from .pinning import pin_memory  # here, as it needs a GPU

            batch = pin_memory(batch)
        if began:
            spans.tell("loader", "next batch", began)
        self._yielded += 1
        if self._promised is not None and self._yielded > self._promised:
            self._warn_of_length(self._promised)
        return batch

    def __len__(self) -> int:
        return len(self.loader)

    def replaced(self) -> None:
        """A newer iteration begins; batches that workers read end with it."""

    def _next_batch(self) -> Any:
        raise NotImplementedError

    def _warn_of_length(self, promised: int) -> None:
        advice = (
            " Every worker iterates over a copy of the dataset: let __iter__ ask get_worker_info() for its share"
            if self.loader.num_workers
            else ""
        )
        warnings.warn(
            f"Length of IterableDataset {self.loader.dataset} was reported to be {promised} (when accessing "
            f"len(dataloader)), but {self._yielded} samples have been fetched.{advice}",
            stacklevel=3,
        )


class LocalBatches(Batches):
    """Batches that are read when they are asked for.

    Of a loader that is no DataLoader and has the attributes of PyTorch's, as fastai's, it is a plain iterator.
    """

    def __new__(cls, loader: Any, *rest: Any) -> Any:
        if rest:
            return super().__new__(cls)
        data, whole = loader.dataset, loader._dataset_kind  # 1: of an iterable dataset
        return map(loader.collate_fn, data if whole else (data[index] for index in loader._index_sampler))

    def __init__(self, loader: DataLoader[Any], order: Order, recipe: Recipe, base_seed: int | None) -> None:
        super().__init__(loader, order)
        self._seeded = base_seed is not None
        self._read = recipe.reader(base_seed)

    def _next_batch(self) -> Any:
        element = next(self.order)
        try:
            if not self._seeded:
                return self._read(element)
            from .seeding import generators_kept  # which few programs in one process need

            with generators_kept():
                return self._read(element)
        except StopIteration as error:  # it would end the loop without a word
            raise RuntimeError(
                f"the dataset or collate_fn raised StopIteration in batch {self._yielded}; let the sampler, or an "
                "IterableDataset, say where the data ends"
            ) from error
