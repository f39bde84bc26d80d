"""Turns a training loop for one rank into one for many: averages the gradients, and shards the loaders."""

from __future__ import annotations

from typing import Any

from ddpgrad import distributed, nn
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.optim import Optimizer
from ddpgrad.utils.data import DataLoader, DistributedSampler

from .sharding import CollateStream, DealtLoader, ShardedSampler, ShardedStream


def setup(*objects: Any, seed: int = 0, **ddp_options: Any) -> Any:
    """Join the process group, and prepare modules, optimizers and loaders of one rank for all.

    Modules come back in DistributedDataParallel (with `ddp_options`), loaders as `prepare` returns
    them (with `seed`), optimizers as they are; in the order in which they were given, one object alone.
    A loop over batches needs nothing else, and checkpoints nothing but this:

        model, optimizer, loader = launcher.setup(model, optimizer, loader)
        for x, y in loader:
            loss_fn(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    Raises TypeError for anything else.
    """
    _meet()
    made = tuple(_set_up(obj, seed, ddp_options) for obj in objects)
    models = [m for m in made if isinstance(m, DistributedDataParallel)]
    for loader in made:
        if isinstance(loader, DealtLoader):
            loader.models = models
    return made[0] if len(made) == 1 else made


def _set_up(obj: Any, seed: int, ddp_options: dict[str, Any]) -> Any:
    if isinstance(obj, DataLoader):
        return prepare(obj, seed)
    if isinstance(obj, (Optimizer, DistributedDataParallel)):
        return obj
    if isinstance(obj, nn.Module):
        # Without parameters there is nothing to average: a loss, say.
        return DistributedDataParallel(obj, **ddp_options) if any(True for _ in obj.parameters()) else obj
    raise TypeError(f"setup takes modules, optimizers and DataLoaders, got {type(obj).__name__}")


def prepare(loader: DataLoader[Any], seed: int = 0, *, even: bool = True) -> DataLoader[Any]:
    """`loader` for this rank: batches of the same size, from this rank's share of the samples.

    In an epoch every sample is read by exactly one rank, in an order that `seed` and the epoch decide
    and that does not depend on the number of ranks: a position in it (`state_dict`, a Checkpointer) is one
    for any number of ranks. drop_last leaves out a last batch that is not whole on all ranks.

    Where the last batch has fewer samples than there are ranks, the ranks without one join in the others' step:
    in a training loop they get another rank's sample, with which the whole loop runs, and `backward` gives gradients of
    zero, in averages over all ranks; for `loss_weight` and `distributed.Mean` it counts as nothing. So optimizers, schedules
    and the loop's own collectives go alike on all ranks. An evaluation counts every sample once: its loop ends a batch earlier there,
    and needs no collectives but those after it. A loop evaluates under `no_grad`, or with all models that went
    through `setup` together with the loader in eval mode. `len` counts the batches of a training loop.
    even=False: the loop ends a batch earlier in training, too, as within `model.join()`.

    Samplers and batch samplers of any kind are asked for the order of all, with generators that are seeded
    alike on all ranks; one that draws by other means must do so alike. Batches of a batch sampler are
    dealt as they are. An iterable dataset is read by every rank, which keeps its share. A loader that
    has a DistributedSampler is returned as it is.
    """
    _meet()
    if isinstance(loader.sampler, DistributedSampler) or isinstance(loader.batch_sampler, DistributedSampler):
        return loader
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    dataset: Any = loader.dataset
    options: dict[str, Any] = {name: getattr(loader, name) for name in _KEPT}
    if loader.num_workers:
        options |= {name: getattr(loader, name) for name in _KEPT_OF_WORKERS}
    deal: dict[str, Any] = {"rank": rank, "ranks": ranks, "drop_last": loader.drop_last, "even": even}
    size = loader.batch_size
    if loader.sampler is None:
        shared = ShardedStream(dataset, size or 1, workers=loader.num_workers, **deal)
        options["collate_fn"] = CollateStream(loader.collate_fn)
        return DealtLoader(shared, size, drop_last=loader.drop_last, **options)
    if size is None and loader.batch_sampler is not None:
        batches: Any = ShardedSampler(loader.batch_sampler, 1, seed=seed, **deal)
        return DealtLoader(dataset, batch_sampler=batches, **options)
    sampler = ShardedSampler(loader.sampler, size or 1, seed=seed, **deal)
    return DealtLoader(dataset, size, sampler=sampler, drop_last=loader.drop_last, **options)


_KEPT = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator", "in_order", "seed_samples",
)  # fmt: skip
_KEPT_OF_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")


def _meet() -> None:
    if not distributed.is_initialized():
        distributed.init_process_group()
