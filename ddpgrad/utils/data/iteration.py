"""One pass over a DataLoader: batches read here, or by workers that read ahead."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ... import cuda, spans
from .fetch import Recipe
from .pinning import pin_memory
from .pool import Pool, ReadFailed, Worker, WorkerEnded
from .seeding import generators_kept

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
        self._pins = loader.pin_memory and cuda.is_available()
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
            batch = pin_memory(batch)
        if began:
            spans.tell("loader", "next batch", began)
        self._yielded += 1
        if self._promised is not None and self._yielded > self._promised:
            self._warn_of_length(self._promised)
        return batch

    def __len__(self) -> int:
        return len(self.loader)

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
    """Batches that are read when they are asked for."""

    def __init__(self, loader: DataLoader[Any], order: Order, recipe: Recipe, base_seed: int | None) -> None:
        super().__init__(loader, order)
        self._seeded = base_seed is not None
        self._read = recipe.reader(base_seed)

    def _next_batch(self) -> Any:
        element = next(self.order)
        if not self._seeded:
            return self._read(element)
        with generators_kept():
            return self._read(element)


class WorkerBatches(Batches):
    """Batches that workers read ahead: `prefetch` each, dealt to them in turn and handed out in order.

    skip: with an iterable dataset, how many of the first batches the workers pass over.
    """

    def __init__(
        self, loader: DataLoader[Any], order: Order, pool: Pool, prefetch: int, skip: int = 0
    ) -> None:
        super().__init__(loader, order)
        self._pool: Pool | None = pool
        self._timeout = loader.timeout
        self._tasks: deque[tuple[Worker, int]] = deque()  # (who, its task), in the order of the batches
        self._active = deque(pool.workers)
        self._error: Exception | None = None
        self._skip = skip
        for _ in range(prefetch * len(pool.workers)):
            self._ask()
        for _ in range(skip):
            self._pass_over()

    def _ask(self) -> None:
        if not self._active:
            return
        element = next(self.order, self)
        if element is self:
            return
        if self._skip:
            self._skip -= 1
            element = False
        worker = self._active[0]
        self._active.rotate(-1)
        self._tasks.append((worker, worker.ask(element)))

    def _pass_over(self) -> None:
        """Wait for a batch that was to be skipped."""
        with contextlib.suppress(StopIteration):  # then there is nothing left to hand out either
            self._next_batch()

    def _next_batch(self) -> Any:
        if self._error is not None:
            raise self._error
        while self._tasks:
            worker, number = self._tasks.popleft()
            try:
                answer = worker.receive(number, self._timeout)
            except Exception as error:
                self._error = error
                self.stop(kill=True)
                raise
            if isinstance(answer, WorkerEnded):
                self._active.remove(worker)
                self._tasks = deque(task for task in self._tasks if task[0] is not worker)
                self._ask()
                continue
            self._ask()
            if isinstance(answer, ReadFailed):
                raise answer.error
            return answer
        self.stop()
        raise StopIteration

    def replaced(self) -> None:
        """A newer iteration uses the workers."""
        self._tasks.clear()
        self._error = RuntimeError(
            "this iteration has ended: the DataLoader has persistent workers, and a newer iteration uses them"
        )
        self._pool = None

    def stop(self, kill: bool = False) -> None:
        """End the workers, unless they stay for the next epoch."""
        self._tasks.clear()
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if kill:
            pool.kill()
        if kill or not self.loader.persistent_workers:
            self.loader.forget_pool(pool)
            pool.close()
