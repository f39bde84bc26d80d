"""Hooks that let `ZeroRedundancyOptimizer(overlap_with_ddp=True)` update a bucket's parameters while others are under way.

Source of the names: torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook

    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, overlap_with_ddp=True, lr=1e-3)
    ddp.register_comm_hook(None, hook_with_zero_step(allreduce_hook, ddp, zero))

Then `backward()` is a whole step, with the bits of a `zero.step()` after it. As in PyTorch the first two backward passes update
nothing, and with `static_graph=True` the first three: a program for PyTorch goes the same way here. What changes gradients after
backward comes too late: clipping, a GradScaler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from ....autograd.grad_mode import no_grad
from ....core.errors import DistributedError
from ....futures import Future
from ...ddp.comm_hooks import GradBucket, HookedWork

if TYPE_CHECKING:
    from ...ddp.data_parallel import DistributedDataParallel
    from ...ddp.reducer import Reducer
    from ...ddp.zero import ZeroRedundancyOptimizer

Hook = Callable[[Any, GradBucket], Future[Any]]


def hook_with_zero_step(
    hook: Hook, ddp: DistributedDataParallel, zero: ZeroRedundancyOptimizer, shard_buckets: bool = False
) -> Hook:
    """`hook`, and when it was called for the last bucket, the updates: of each bucket as soon as it is averaged.

    ddp, zero: the same parameters over the same ranks. shard_buckets: without effect, a bucket may be shared anyway.
    Raises ValueError for what does not go together.
    """
    return _stepping(hook, ddp, zero, interleaved=False)


def hook_with_zero_step_interleaved(
    hook: Hook, ddp: DistributedDataParallel, zero: ZeroRedundancyOptimizer, shard_buckets: bool = False
) -> Hook:
    """As `hook_with_zero_step`, but a bucket's update comes before the next bucket is communicated, while backward goes on."""
    return _stepping(hook, ddp, zero, interleaved=True)


def _stepping(
    hook: Hook, ddp: DistributedDataParallel, zero: ZeroRedundancyOptimizer, interleaved: bool
) -> Hook:
    _check(ddp, zero)
    model, first = ref(ddp), -1
    averaging: list[tuple[GradBucket, HookedWork]] = []
    updating: list[Callable[[], None]] = []

    def update() -> None:
        """Update what is being averaged. Ranks come here at the same places, so that their collectives go in one order."""
        while averaging:
            bucket, work = averaging.pop(0)
            work.wait()
            with no_grad():
                updating.append(zero.start_step(bucket.parameters(), bucket.label))

    def hook_with_zero(state: Any, bucket: GradBucket) -> Future[Any]:
        nonlocal first
        reducer = model().reducer  # type: ignore[union-attr]
        if bucket.index() == 0:
            averaging.clear()  # what a backward that raised has left
            updating.clear()
        if interleaved:
            update()
        flat = bucket.buffer()
        future = hook(state, bucket)
        first = reducer.steps if first < 0 else first
        if reducer.steps < max(first + 1, 3 if reducer.static else 2):
            return future
        _check_step(model(), reducer, bucket)
        averaging.append((bucket, HookedWork(future, flat)))
        if bucket.is_last():
            update()
            for end in updating:
                end()
        return future

    return hook_with_zero


def _check(ddp: DistributedDataParallel, zero: ZeroRedundancyOptimizer) -> None:
    """Raise for a model and an optimizer that cannot be updated within backward."""
    if not zero.overlap_with_ddp:
        raise ValueError(
            "ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use this hook properly"
        )
    if zero.process_group.ranks != ddp.process_group.ranks:
        raise ValueError(
            f"hook_with_zero_step: DistributedDataParallel has the ranks {[*ddp.process_group.ranks]} and the optimizer "
            f"{[*zero.process_group.ranks]}: give both the same process_group"
        )
    averaged = set(ddp.reducer.parameters)
    numbers = [n for n, p in enumerate(p for group in zero.param_groups for p in group["params"])
               if p.requires_grad and p not in averaged]  # fmt: skip
    if numbers:
        raise ValueError(
            f"hook_with_zero_step: the optimizer's parameters {numbers} are not among those that DistributedDataParallel "
            "averages: give both the same"
        )
    late = {
        "find_unused_parameters=True": ddp.find_unused_parameters and not ddp.static_graph,
        "nonfinite_gradients": ddp.nonfinite_gradients is not None,
        "delay_all_reduce_named_params": bool(ddp.reducer.delayed),
    }
    for option, given in late.items():
        if given:
            raise ValueError(
                f"hook_with_zero_step: DistributedDataParallel has {option}, which decides about gradients after they are used "
                "here: leave it out, or call zero.step() after backward"
            )


def _check_step(ddp: Any, reducer: Reducer, bucket: GradBucket) -> None:
    """Raise where gradients will be changed after they are averaged, or are not there."""
    weighted = reducer.weights is not None and reducer.weights.current is not None
    if weighted or ddp.joined is not None or (reducer.micro is not None and reducer.micro.count):
        raise DistributedError(
            "hook_with_zero_step: loss_weight, accumulate and join scale gradients after they are used here. Leave them out, or "
            "call zero.step() after backward, without overlap_with_ddp"
        )
    if any(p.grad is None for p in bucket.parameters()):
        raise DistributedError(
            f"hook_with_zero_step: rank {reducer.communicator.rank} did not use all of the parameters {bucket.label} in this "
            "backward, and whether others did is known at its end only. Call requires_grad_(False) before the model is wrapped "
            "for what is unused, or zero.step() after backward"
        )
