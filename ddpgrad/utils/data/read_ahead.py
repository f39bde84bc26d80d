"""One pass over a DataLoader whose workers read ahead."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from .iteration import Batches, Order
from .pool import Pool, ReadFailed, Worker, WorkerEnded

if TYPE_CHECKING:
    from .dataloader import DataLoader


class WorkerBatches(Batches):
    """Batches that workers read ahead: `prefetch` each, dealt to them in turn and handed out in order.

    skip: with an iterable dataset, how many of the first batches the workers pass over.
    """

    def __new__(cls, loader: Any, *rest: Any) -> Any:
        if not rest:
            raise NotImplementedError(f"a {type(loader).__name__} has no workers here; give it num_workers=0")
        return super().__new__(cls)

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


_MultiProcessingDataLoaderIter = WorkerBatches  # its name in PyTorch
