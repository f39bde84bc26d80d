"""What a module that was given to `fully_shard` is in addition.

Source of names: https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, Self

from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ..ddp.replica_check import broadcast
from .context import Context
from .group import Group
from .state import State, state_of, states_below


@functools.cache
def class_of(cls: type, kind: type[FSDPModule]) -> type:
    """The class that a module of class `cls` becomes, which is of `kind`, too."""
    return type(f"{kind.prefix}{cls.__name__}", (kind, cls), {"__module__": cls.__module__})


class FSDPModule(Module):
    """What a module is in addition after `fully_shard`. All its methods are called on all ranks alike."""

    prefix = "FSDP"  # of names of classes

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A module of the class that this one had before: a slice of a Sequential is not sharded by itself."""
        return cls.__mro__[cls.__mro__.index(FSDPModule) + 1](*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is not copied, since this rank has parts of its parameters only: make another model, and "
            "give it this one's state_dict()"
        )

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the module's own group, as its forward will. async_op: return at once, with a handle to wait for."""
        state = state_of(self)
        state.ready()
        for group in state.groups:
            group.start_gathering()
        handle = UnshardHandle(state.groups)
        if async_op:
            return handle
        handle.wait()
        return None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        for group in self._groups(recurse=True):
            group.reshard()  # what is moved or cast are the rows
        return super()._apply(fn, recurse)

    def reshard(self) -> None:
        """Drop the whole parameters of the module's own group."""
        for group in state_of(self).groups:
            group.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """False: the next backward passes add up whole gradients locally, and the first with True averages the sum.

        It is what `no_sync` is for DistributedDataParallel.
        """
        for group in self._groups(recurse):
            group.syncs = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """As `set_requires_gradient_sync`: a mesh of two dimensions averages over all ranks at once, or not yet."""
        for group in self._groups(recurse):
            group.all_reduces = requires_all_reduce

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Without effect: every backward waits for its averages."""

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide the sums of this module's own gradients by `factor`, instead of by the number of ranks."""
        if not factor > 0:
            raise ValueError(f"set_gradient_divide_factor: expected a number above 0, got {factor}")
        for group in self._groups(recurse=False):
            group.divide_factor = float(factor)

    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """The older name of `set_gradient_divide_factor`."""
        self.set_gradient_divide_factor(factor)

    def set_reduce_scatter_unused_params(
        self, reduce_scatter_unused_params: bool, *, recurse: bool = True
    ) -> None:
        """True: a parameter that a rank's backward has not used counts as a gradient of zeros there.

        So ranks may use different parameters of a group, whose forward all of them run. Averages of such groups are made at the
        end of backward.
        """
        for group in self._groups(recurse):
            group.reduces_unused = reduce_scatter_unused_params

    def set_all_reduce_hook(self, hook: Callable[[Tensor], None], *, stream: Any = None) -> None:
        """Let `hook` change this rank's part of the averages of this module's own gradients, flat, in place."""
        for group in self._groups(recurse=False):
            group.average_hook = hook

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """False: do not gather before backward comes here; what turns out to be needed is gathered then."""
        for group in self._groups(recurse=False):
            group.gathers_early = unshard_in_backward

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Begin to gather these modules' own groups when this one's is there in forward."""
        state_of(self).next_in_forward = _states_of(modules)

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """The same in backward, in place of the one that was used before this one in forward."""
        following = [group for state in _states_of(modules) for group in state.groups]
        for group in self._groups(recurse=False):
            group.next_in_backward = following

    def reset_iter_state(self) -> None:
        """Go on after a forward or backward that raised on all ranks; what it has left of gradients is dropped."""
        self._context("reset_iter_state").reset()

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Without effect, as what follows: about the memory and streams of NCCL."""

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """Without effect."""

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None:
        """Without effect."""

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: int, *, recurse: bool = True) -> None:
        """Without effect: one reduction is under way at a time."""

    def set_post_optim_event(self, event: Any) -> None:
        """Without effect."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """As the argument of `fully_shard`, later."""
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(
                f"reshard_after_forward should be a bool, got {type(reshard_after_forward).__name__}"
            )
        for state in states_below(self) if recurse else [state_of(self)]:
            state.set_reshard_after_forward(reshard_after_forward)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """False: keep whole parameters after backward, for one that adds to the same gradients without an update between."""
        for group in self._groups(recurse):
            group.reshards_after_backward = reshard_after_backward

    def accumulate(self, k: int, *batch: Any) -> Iterator[Any]:
        """As `DistributedDataParallel.accumulate`, with the same bits: `for x, y in model.accumulate(k, x, y):`.

        A rank has whole gradients until its last micro-batch, as without `set_requires_gradient_sync`, and about log2(k) of
        them. Buffers are rank 0's before and after it. `reduce_dtype` has 32 bits or more; micro-batches add up in it.
        """
        from ..ddp.accumulate import accumulate  # here, as few programs do

        context, buffers = self._context("accumulate"), list(self.buffers())
        yield from accumulate(context, self, buffers, k, batch)
        if self.training:
            broadcast(context.communicator, buffers, "buffers of rank 0")

    def loss_weight(self, n: float | Tensor) -> None:
        """As `DistributedDataParallel.loss_weight`: how much the next batch's loss, a mean, counts."""
        context = self._context("loss_weight")
        if any(group.divide_factor is not None for group in context.groups):
            raise RuntimeError(
                "loss_weight: gradients are divided by the sum of weights, and set_gradient_divide_factor says another number: "
                "use one of them"
            )
        context.weighted().attach(context)
        context.weighted().add(n)

    def _context(self, caller: str) -> Context:
        state = state_of(self)
        context = state.ready()
        if context.root is not state:
            raise RuntimeError(
                f"{caller}: this module is part of another that is sharded; call it of that one"
            )
        return context

    def _groups(self, recurse: bool) -> list[Group]:
        states = states_below(self) if recurse else [state_of(self)]
        return [group for state in states for group in state.groups]


class ReplicateModule(FSDPModule):
    """What a module is in addition after `replicate`."""

    prefix = "Replicate"


class UnshardHandle:
    """Parameters that are on their way."""

    def __init__(self, groups: list[Group]) -> None:
        self._groups = groups

    def wait(self) -> None:
        """Return when they are in the modules."""
        for group in self._groups:
            group.gather()


def share_comm_ctx(modules: list[FSDPModule]) -> None:
    """Without effect: there are no streams to share."""


def _states_of(modules: Iterable[Module]) -> list[State]:
    modules = list(modules)
    if others := [type(m).__name__ for m in modules if not isinstance(m, FSDPModule)]:
        raise ValueError(f"expected modules that were given to fully_shard, got {', '.join(others)}")
    return [state_of(m) for m in modules]


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let the method of that name do before and after it what forward does; nothing for a module that is not sharded."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"register_fsdp_forward_method: {type(module)} does not have a method {method_name}")
    method, state = getattr(module, method_name), state_of(module)

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = state.before(module, args, kwargs)
        result = None
        try:
            result = method(*args, **kwargs)
        finally:
            result = state.after(module, args, result)
        return result

    vars(module)[method_name] = wrapped
