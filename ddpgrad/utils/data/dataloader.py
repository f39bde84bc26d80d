"""DataLoader: batches of a dataset in PyTorch's order, resumable at any position."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...compat.absent import _InfiniteConstantSampler, _sharding_worker_init_fn  # noqa: F401 - libraries import them here
from ...core.errors import CheckpointError
from ...core.face import also_in
from ...core.tensor import Tensor
from ...random import Generator, rank_generator
from .arguments import check_order, check_pinning, check_workers
from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset
from .fetch import Recipe
from .iteration import Batches, LocalBatches, Order
from .sampler import BatchSampler, RandomSampler, SequentialSampler

if TYPE_CHECKING:
    from .pool import Pool

# Names of PyTorch's file that libraries import, or write in annotations.
_BaseDataLoaderIter, _SingleProcessDataLoaderIter = Batches, LocalBatches
_DatasetKind = SimpleNamespace(Map=0, Iterable=1)
__getattr__ = also_in(__package__ or "", "read_ahead", "worker")

T_co = TypeVar("T_co", covariant=True)

_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
_MAY_CHANGE = ("batch_size", "number of ranks")  # where a sampler can deal samples anew


class DataLoader(Generic[T_co]):
    """Iterate over batches of a dataset: anything with `__len__` and `__getitem__`, or an IterableDataset.

    The arguments are PyTorch's. `batch_size=None` hands out single samples. `in_order=False` only allows
    another order: batches always come in the order of the sampler.

    num_workers: processes that read `prefetch_factor` (2) batches ahead each; `multiprocessing_context`
    says how they start, and why a fork server is the default is told in `pool.py`. The dataset is sent once;
    its arrays are shared by all workers, which may change copies of their own. Batches arrive in shared
    memory without being copied. A worker that raises, dies or gives no batch for `timeout` seconds ends the
    iteration with an error that names it and its sample.

    seed_samples: restart the global generators (ddpgrad's, `random`, `numpy.random`) before every sample from
    a seed of the epoch and the sample's index, so that augmentations are the same with any number of workers,
    differ between epochs, and repeat after a resumption. By default this is done in workers; without workers
    a dataset draws from the program's generators, as in PyTorch, unless seed_samples is True (the program's
    generators then stay as they are). A seed costs some 10 microseconds. With seed_samples=False workers are
    seeded once an epoch, with PyTorch's numbers. An iterable dataset has no index: its workers are seeded once
    an epoch. `__getitems__` of a dataset's own gets the seed of its first index.

    The loader counts its epochs (`epoch`) and tells them to a `DistributedSampler`.
    `state_dict` is its exact position, also in the middle of an epoch: after
    `load_state_dict` the next iteration hands out the batches that were left, by any number of workers. With a
    `DistributedSampler` the batch size and the number of ranks may be others than before, where ranks
    stopped together: the samples that no rank has had are dealt anew. The default
    generator is the program's to restore (a Checkpointer does). The order is drawn again to
    get there, so a generator given to a sampler that draws while it is read (with
    replacement, or a sampler of your own) must not be used for anything else. An iterable dataset is read again
    from its beginning, by the same number of workers.

    pin_memory: put batches into page-locked memory, from which a GPU copies faster; a warning where there is no GPU.
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
        seed_samples: bool | None = None,
    ) -> None:
        check_workers(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context)
        check_pinning(pin_memory, pin_memory_device)
        self._iterable = isinstance(dataset, IterableDataset)
        check_order(self._iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
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
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order
        self.seed_samples = num_workers > 0 if seed_samples is None else seed_samples
        batches = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batches else default_convert)
        self._epoch = 0
        self._batches = 0  # handed out in the epoch that runs
        self._drawn = 0  # elements of the order that were drawn for that epoch before this process
        self._order: Order | None = None  # of the iteration that runs
        # The generators when that epoch began; None between epochs.
        self._start: dict[str, Tensor] | None = None
        self._base_seed = 0  # of that epoch's workers and samples
        self._resume = False  # the next iteration continues the epoch at a loaded position
        self._sampler_epoch: int | None = None  # the sampler's epoch at that position
        self._running: weakref.ref[Batches] | None = None  # so that workers end with an abandoned iteration
        self._iterator: Pool | None = None  # persistent workers; under this name programs look for them
        self._promised: int | None = None
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_initialized" in self.__dict__:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def epoch(self) -> int:
        """Number of the epoch that runs, or that the next iteration begins."""
        return self._epoch

    def __len__(self) -> int:
        """Batches of an epoch; TypeError if the dataset or the sampler has no length."""
        if self._iterable:
            self._promised = len(self.dataset)  # pyright: ignore[reportArgumentType]
        return len(self._source())

    def __iter__(self) -> Iterator[Any]:
        return self._get_iterator()

    def _get_iterator(self) -> Iterator[Any]:
        """A new iteration; loaders of libraries that define `__iter__` begin one so, as with PyTorch."""
        if self._resume:
            return self._continue_epoch()
        if self._start is not None:  # the last iteration was left before its end
            self._epoch += 1
        self._batches = self._drawn = 0
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
            "drawn": self._drawn if self._order is None else self._order.drawn,
            "base_seed": self._base_seed,
            "start": self._start,
            "now": self._generator_states(),
            "sampler": None if sampler is None else sampler.state_dict(),
            "fits": self._what_must_fit(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`; CheckpointError if it was made by a different loader."""
        sampler, fits = self._stateful_sampler(), self._what_must_fit()
        for name, now in fits.items():
            was = state_dict["fits"].get(name)
            if was != now and not (name in _MAY_CHANGE and hasattr(sampler, "continue_after")):
                raise CheckpointError(
                    f"the saved position does not fit this DataLoader: {name} was {was!r} and is {now!r}"
                )
        dealt_anew = any(state_dict["fits"].get(name) != fits[name] for name in _MAY_CHANGE)
        self._epoch, self._batches = state_dict["epoch"], state_dict["batches"]
        self._start, self._base_seed = state_dict["start"], state_dict["base_seed"]
        self._drawn, self._order = state_dict["drawn"], None
        self._running = None
        self._resume = self._start is not None
        self._tell_epoch()
        if sampler is not None:
            if dealt_anew:
                read = self._batches * (state_dict["fits"]["batch_size"] or 1)
                sampler.continue_after(state_dict["sampler"], read)
                self._batches = self._drawn = 0
            else:
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
        live, base_seed = self._generator_states(), self._base_seed
        self._set_generators(self._start)
        try:
            order = self._begin()
            if self._iterable and self.num_workers:
                skipped = self._batches  # the workers do it
            else:
                skipped = order.skip(self._batches, self._drawn)
        finally:
            self._set_generators(live)
        if skipped < self._batches:
            raise CheckpointError(
                f"the saved position is after {self._batches} batches, but the epoch now ends after "
                f"{skipped}: the dataset or the sampler has changed"
            )
        self._base_seed = base_seed
        self._resume = False
        return self._run(order, self._batches if self._iterable else 0)

    # -- how an epoch is read ----------------------------------------------------------

    def _begin(self) -> Order:
        """Begin to draw an epoch's order.

        Its elements are lists of indices, or single ones, or (lists of) samples of an iterable
        dataset. Drawing is apart from reading, so that a position is reached without reading.
        """
        endless = self._iterable and self.num_workers > 0  # each worker knows when its samples end
        elements = itertools.repeat(True) if endless else iter(self._source())
        generator = rank_generator() if self.generator is None else self.generator
        self._base_seed = generator.raw64() % (1 << 63)  # drawn without workers too, as in PyTorch
        return Order(elements)

    def _run(self, order: Order, skip: int = 0) -> Iterator[Any]:
        """Iterate over the batches of `order`; of an iterable dataset workers skip `skip` batches."""
        self._order = order
        recipe = Recipe(
            self.dataset,
            self.collate_fn,
            self.batch_sampler is not None,
            self.batch_size if self._iterable else None,
            self.drop_last,
        )
        if self.num_workers:
            from .read_ahead import WorkerBatches  # here, as most loaders have no workers

            batches = WorkerBatches(self, order, self._workers(recipe), self.prefetch_factor or 1, skip)
        else:
            batches = LocalBatches(self, order, recipe, self._base_seed if self.seed_samples else None)
        self._running = weakref.ref(batches)
        return batches

    def _workers(self, recipe: Recipe) -> Pool:
        """Workers for an iteration, which has begun an epoch."""
        running = None if self._running is None else self._running()
        pool = self._iterator
        if pool is None:
            assert self.prefetch_factor is not None
            from .pool import Pool

            pool = Pool(
                self.num_workers,
                recipe,
                self.worker_init_fn,
                self._base_seed,
                self.prefetch_factor,
                self.multiprocessing_context,
            )
            if self.persistent_workers:
                self._iterator = pool
        elif running is not None:
            running.replaced()
        pool.begin(self._base_seed, self.seed_samples)
        return pool

    def _source(self) -> Any:
        """What yields the elements of an epoch's order."""
        if not self._iterable:
            return self.sampler if self.batch_sampler is None else self.batch_sampler
        if self.batch_size is None:
            return self.dataset
        source: Any = self.dataset
        return BatchSampler(source, self.batch_size, self.drop_last)

    # -- what an iteration tells -------------------------------------------------------

    def advanced(self, batches: Batches) -> None:
        """`batches` hands out one; an iteration that a newer one replaced does not count."""
        if self._is_current(batches):
            self._batches += 1

    def ended(self, batches: Batches) -> None:
        """`batches` has handed out all."""
        if self._is_current(batches):
            self._epoch, self._batches, self._start = self._epoch + 1, 0, None
            self._drawn, self._order, self._running = 0, None, None

    def _is_current(self, batches: Batches) -> bool:
        return self._running is not None and self._running() is batches

    def promised_length(self) -> int | None:
        """The length that an iterable dataset said it has, if the program asked for `len(loader)`."""
        return self._promised

    def forget_pool(self, pool: Pool) -> None:
        """`pool` has ended."""
        if self._iterator is pool:
            self._iterator = None

    # -- what the position depends on --------------------------------------------------

    def _samplers(self) -> list[Any]:
        """The samplers that decide the order, the outermost first."""
        inner = getattr(self.batch_sampler, "sampler", None)
        # A stream that is dealt to ranks has a position that all of them share, as a sampler's order has.
        stream = self.dataset if self._iterable and hasattr(self.dataset, "continue_after") else None
        found = [s for s in (self.batch_sampler, self.sampler, inner, stream) if s is not None]
        return list({id(s): s for s in found}.values())

    def _tell_epoch(self) -> None:
        for sampler in self._samplers():
            if hasattr(sampler, "follow_epoch"):
                sampler.follow_epoch(self._epoch)

    def _stateful_sampler(self) -> Any:
        return next((s for s in self._samplers() if hasattr(s, "state_dict")), None)

    def _generators(self) -> dict[str, Generator]:
        """Every generator that the order is drawn from, once."""
        named: dict[str, Any] = {"default": rank_generator(), "loader": self.generator}
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
            "number of samples": None if self._iterable or isinstance(dataset, type) else len(dataset),
            "batch_size": getattr(self.batch_sampler, "batch_size", self.batch_size),
            "drop_last": getattr(self.batch_sampler, "drop_last", self.drop_last),
            "kind of sampler": type(self.sampler).__name__,
            "generators": list(self._generators()),
            "number of ranks": getattr(self._stateful_sampler(), "num_replicas", None),
            # The shares of an iterable dataset depend on it.
            "num_workers": self.num_workers if self._iterable else None,
        }
