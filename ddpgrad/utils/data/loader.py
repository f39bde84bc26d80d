"""DataLoader: batches of a dataset, in PyTorch's order, from any position again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ..._tensor import Tensor
from ...errors import CheckpointError
from ...random import Generator, default_generator
from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset, batch_reader, read_samples
from .sampler import BatchSampler, RandomSampler, SequentialSampler

T_co = TypeVar("T_co", covariant=True)


class DataLoader(Generic[T_co]):
    """Iterate over batches of a dataset, in this process.

    The arguments are PyTorch's. `batch_size=None` hands out single samples. Batches lie
    in ordinary memory, whatever `pin_memory` says; `num_workers` must be 0.

    The loader counts its epochs (`epoch`) and tells them to a `DistributedSampler`.
    `state_dict` is its exact position, also in the middle of an epoch: after
    `load_state_dict` the next iteration hands out the batches that were left. The default
    generator is the program's to restore (a Checkpointer does). The order is drawn again to
    get there, so a generator given to a sampler that draws while it is read (with
    replacement, or a sampler of your own) must not be used for anything else.
    """

    state_is_per_rank = True  # a Checkpointer stores the state of every rank

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, prefetch_factor, persistent_workers)
        self._iterable = isinstance(dataset, IterableDataset)
        _check_order(self._iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if sampler is None and not self._iterable:
            source: Any = dataset
            sampler = RandomSampler(source, generator=generator) if shuffle else SequentialSampler(source)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None and sampler is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order
        batches = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batches else default_convert)
        self._epoch = 0
        self._batches = 0  # handed out in the epoch that runs
        # The generators when that epoch began; None between epochs.
        self._start: dict[str, Tensor] | None = None
        self._resume = False  # the next iteration continues the epoch at a loaded position
        self._sampler_epoch: int | None = None  # the sampler's epoch at that position
        self._running: _Batches | None = None

    @property
    def epoch(self) -> int:
        """Number of the epoch that runs, or that the next iteration begins."""
        return self._epoch

    def __len__(self) -> int:
        """Batches of an epoch; TypeError if the dataset or the sampler has no length."""
        return len(self._source())

    def __iter__(self) -> Iterator[Any]:
        if self._resume:
            return self._continue_epoch()
        if self._start is not None:  # the last iteration was left before its end
            self._epoch += 1
        self._batches = 0
        self._tell_epoch()
        self._start = self._generator_states()
        return self._run(self._begin())

    # -- the position ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The position: plain data and uint8 tensors, different on every rank."""
        sampler = self._stateful_sampler()
        return {
            "epoch": self._epoch,
            "batches": self._batches,
            "start": self._start,
            "now": self._generator_states(),
            "sampler": None if sampler is None else sampler.state_dict(),
            "fits": self._what_must_fit(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`; CheckpointError if it was made by a different loader."""
        for name, now in self._what_must_fit().items():
            was = state_dict["fits"].get(name)
            if was != now:
                raise CheckpointError(
                    f"the saved position does not fit this DataLoader: {name} was {was!r} and is {now!r}"
                )
        self._epoch, self._batches = state_dict["epoch"], state_dict["batches"]
        self._start = state_dict["start"]
        self._running = None
        self._resume = self._start is not None
        self._tell_epoch()
        if (sampler := self._stateful_sampler()) is not None:
            sampler.load_state_dict(state_dict["sampler"])
            self._sampler_epoch = state_dict["sampler"].get("epoch")
        for name, generator in self._generators().items():
            if name != "default":
                generator.set_state(state_dict["now"][name])

    def _continue_epoch(self) -> Iterator[Any]:
        """Draw the saved epoch's order again, skip what was handed out, and put the generators back."""
        assert self._start is not None
        epoch = getattr(self._stateful_sampler(), "epoch", None)
        if epoch != self._sampler_epoch:
            raise CheckpointError(
                f"the DataLoader stands after batch {self._batches} of the sampler's epoch "
                f"{self._sampler_epoch}, but set_epoch({epoch}) was called since: the batches that are left "
                "belong to another order. Begin the loop at `loader.epoch`, or do not call set_epoch"
            )
        live = self._generator_states()
        self._set_generators(self._start)
        try:
            order = self._begin()
            skipped = sum(1 for _ in itertools.islice(order, self._batches))
        finally:
            self._set_generators(live)
        if skipped < self._batches:
            raise CheckpointError(
                f"the saved position is after {self._batches} batches, but the epoch now ends after "
                f"{skipped}: the dataset or the sampler has changed"
            )
        self._resume = False
        return self._run(order)

    # -- how an epoch is read ----------------------------------------------------------

    def _run(self, order: Iterator[Any]) -> Iterator[Any]:
        self._running = _Batches(self, order, self._reader())
        return self._running

    def _begin(self) -> Iterator[Any]:
        """Begin to draw an epoch's order.

        Its elements are lists of indices, or single ones, or (lists of) samples of an iterable
        dataset. Drawing is apart from reading, so that a position is reached without reading.
        """
        order = iter(self._source())
        # PyTorch draws a seed for its workers here, also when there are none.
        (default_generator() if self.generator is None else self.generator).raw64()
        return order

    def _source(self) -> Any:
        """What yields the elements of an epoch's order."""
        if not self._iterable:
            return self.sampler if self.batch_sampler is None else self.batch_sampler
        if self.batch_size is None:
            return self.dataset
        source: Any = self.dataset
        return BatchSampler(source, self.batch_size, self.drop_last)

    def _reader(self) -> Callable[[Any], Any]:
        """What turns an element of the order into a batch."""
        dataset: Dataset[Any] = self.dataset
        collate: Callable[[Any], Any] = self.collate_fn
        if self._iterable:
            return collate
        if self.batch_sampler is None:
            return lambda index: collate(dataset[index])
        whole = batch_reader(dataset) if collate is default_collate else None
        return whole or (lambda indices: collate(read_samples(dataset, indices)))

    # -- what the position depends on --------------------------------------------------

    def _samplers(self) -> list[Any]:
        """The samplers that decide the order, the outermost first."""
        inner = getattr(self.batch_sampler, "sampler", None)
        found = [s for s in (self.batch_sampler, self.sampler, inner) if s is not None]
        return list({id(s): s for s in found}.values())

    def _tell_epoch(self) -> None:
        for sampler in self._samplers():
            if hasattr(sampler, "follow_epoch"):
                sampler.follow_epoch(self._epoch)

    def _stateful_sampler(self) -> Any:
        return next((s for s in self._samplers() if hasattr(s, "state_dict")), None)

    def _generators(self) -> dict[str, Generator]:
        """Every generator that the order is drawn from, once."""
        named: dict[str, Any] = {"default": default_generator(), "loader": self.generator}
        for depth, sampler in enumerate(self._samplers()):
            named[f"sampler {depth}"] = getattr(sampler, "generator", None)
        first: dict[int, str] = {}
        for name, generator in named.items():
            if isinstance(generator, Generator):
                first.setdefault(id(generator), name)
        return {name: named[name] for name in first.values()}

    def _generator_states(self) -> dict[str, Tensor]:
        return {name: generator.get_state() for name, generator in self._generators().items()}

    def _set_generators(self, states: dict[str, Tensor]) -> None:
        for name, generator in self._generators().items():
            generator.set_state(states[name])

    def _what_must_fit(self) -> dict[str, Any]:
        dataset: Any = self.dataset
        return {
            "number of samples": len(dataset) if hasattr(dataset, "__len__") else None,
            "batch_size": getattr(self.batch_sampler, "batch_size", self.batch_size),
            "drop_last": getattr(self.batch_sampler, "drop_last", self.drop_last),
            "kind of sampler": type(self.sampler).__name__,
            "generators": list(self._generators()),
        }


class _Batches(Iterator[Any]):
    """One iteration over a loader, which it tells how far it got."""

    def __init__(self, loader: DataLoader[Any], order: Iterator[Any], read: Callable[[Any], Any]) -> None:
        self._loader = loader
        self._order = order
        self._read = read

    def __next__(self) -> Any:
        loader = self._loader
        current = loader._running is self  # an iteration that a newer one replaced does not count
        try:
            items = next(self._order)
        except StopIteration:
            if current:
                loader._epoch, loader._batches, loader._start = loader._epoch + 1, 0, None
                loader._running = None
            raise
        batch = self._read(items)
        if current:
            loader._batches += 1
        return batch

    def __len__(self) -> int:
        return len(self._loader)


def _check_workers(num_workers: int, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers != 0:
        raise NotImplementedError(
            f"DataLoader(num_workers={num_workers}): worker processes are not there yet; pass num_workers=0"
        )
    if prefetch_factor is not None or persistent_workers:
        raise ValueError("prefetch_factor and persistent_workers need num_workers > 0; leave them out")


def _check_order(
    iterable: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> None:
    """Refuse the arguments that contradict each other, with PyTorch's exception."""
    if iterable and (shuffle or sampler is not None or batch_sampler is not None):
        raise ValueError("an IterableDataset has its own order: leave out shuffle, sampler and batch_sampler")
    if sampler is not None and shuffle:
        raise ValueError("a sampler decides the order: leave out shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("a batch_sampler decides all: leave out batch_size, shuffle, sampler and drop_last")
    if batch_sampler is None and batch_size is None and drop_last:
        raise ValueError("batch_size=None hands out single samples: leave out drop_last")
