"""`fully_shard`: parameters, gradients and optimizer state divided among the ranks.

Source of names and behaviour: https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (FSDP2); of the idea:
https://arxiv.org/abs/1910.02054 (stages 2 and 3)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar

from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ..ddp.averages import checked_action
from ..ddp.data_parallel import DistributedDataParallel
from ..ddp.model_check import check_module, verify, wrapped_part
from ..ddp.replica_check import broadcast
from ..device_mesh import DeviceMesh, init_device_mesh
from ..process_group import get_world_size, init_process_group, is_initialized
from ..tensor.dtensor import DTensor, ShardedParameter
from ..tensor.layout import Layout, Replicate, Shard
from ..tensor.parts import placed
from .beginning import device_kind
from .context import Context
from .group import Group, Member, no_offload
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from .state import State, state_of, states_below

M = TypeVar("M", bound=Module)


def fully_shard(
    module: M,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: Iterable[Tensor] = (),
    nonfinite_gradients: Literal["skip", "stop", "raise"] | None = None,
) -> M:
    """Give every rank its rows (`Shard(0)`) of each parameter of `module`; returns the module, which is changed in place.

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())

    Parameters of `module` that no call for a part of it has taken form a group, which is gathered before the module's
    forward and dropped after it, gathered again in backward, and whose gradients are averaged and dealt to the ranks as soon
    as all have arrived. Losses and parameters have the bits that DistributedDataParallel gives them, at any number of
    ranks and processes. The ranks compare the parameters by name, shape and dtype, and take over rank 0's values,
    buffers included. Parameters stay the same objects, so that an optimizer without state may be older.

    mesh: the ranks, by default the world. On a mesh of two dimensions parameters are divided along the second, and each line
    along the first has replicas: `init_device_mesh("cpu", (R, S), mesh_dim_names=("replicate", "shard"))`. Gradients are averages
    over all R x S ranks, with the bits that DistributedDataParallel gives these. reshard_after_forward: False keeps whole
    parameters from forward to backward; None is False for the module that is used by itself, and True for those below it.
    mp_policy: see `MixedPrecisionPolicy`. offload_policy: a `CPUOffloadPolicy` is for parameters on the CPU. ignored_params: each
    rank's own.
    nonfinite_gradients: as for DistributedDataParallel, said in the outermost call; it costs a pass over this rank's part of the
    averages and a collective of a byte. Hooks of `register_post_accumulate_grad_hook` then come when all averages are known.
    Parameters on meta get values later: `module.to_empty(device="cuda")`, then `reset_parameters` or `load_state_dict`.

    Parameters may lie on GPUs, all of a model on one, and stay there from its first use on: their rows, gradients and optimizer
    state do so too. They travel as those of DistributedDataParallel do, by NCCL or through host memory, and sums have the order
    of the tree either way. There are no numbers for `reshard_after_forward`, and no lists of modules. Buffers are each rank's own
    after the beginning.
    Raises ValueError for what cannot be sharded, RuntimeError for what is already, MismatchError where ranks differ.
    """
    policy = mp_policy or MixedPrecisionPolicy()
    check_module(module, "fully_shard")
    if (wrapped := wrapped_part(module, DistributedDataParallel)) is not None:
        raise RuntimeError(f"fully_shard: {wrapped}: fully_shard averages gradients itself, use ddp.module")
    if isinstance(module, FSDPModule):
        raise RuntimeError(f"fully_shard was called for this {type(module).__name__} already: once is enough")
    if reshard_after_forward not in (True, False, None):
        raise NotImplementedError(
            f"fully_shard: reshard_after_forward is True, False or None here, got {reshard_after_forward}"
        )
    if mesh is None:
        if not is_initialized():
            init_process_group()
        mesh = init_device_mesh(device_kind(module), (get_world_size(),))
    if mesh.ndim > 2:
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    checked_action("fully_shard", nonfinite_gradients)
    c = mesh._flatten().get_group().communicator
    ignored = {id(p) for p in ignored_params}
    found = _own_parameters(module, mesh, ignored)
    own = [(name, module.get_parameter(name)) for name in found]
    offloads = isinstance(offload_policy, CPUOffloadPolicy)
    if offloads and (on_gpu := [(name, p.device) for name, p in own if p.is_cuda]):
        raise no_offload(*on_gpu[0])
    options = {
        "reshard_after_forward": reshard_after_forward,
        "param_dtype": str(policy.param_dtype),
        "reduce_dtype": str(policy.reduce_dtype),
        "nonfinite_gradients": nonfinite_gradients,
    }
    verify(c, own, options, "fully_shard")
    values = [p for _, p in own if not p.is_meta]
    buffers = [b for b in module.buffers() if not b.is_meta]
    broadcast(c, [*values, *buffers], "parameters and buffers of rank 0")
    by_dtype: dict[Any, list[Member]] = {}
    for name, p in own:
        member = Member(name, found[name], *_sharded(p, mesh))
        by_dtype.setdefault(p.dtype, []).append(member)
    reshards = reshard_after_forward is not False
    groups = [Group(members, policy, reshards, offloads) for members in by_dtype.values()]
    state = State(module, groups, policy, mesh, reshard_after_forward, nonfinite_gradients)
    vars(module)["_fsdp_state"] = state
    module.__class__ = _class_of(type(module))
    state.listen()
    return module


def _own_parameters(
    module: Module, mesh: DeviceMesh, ignored: set[int]
) -> dict[str, list[tuple[Module, str]]]:
    """By name, the parameters that form the module's group, with the modules that have them and their names there."""
    taken: set[int] = set()  # of modules that were sharded by themselves
    for state in states_below(module):
        taken.update(map(id, state.module.modules()))
    first: dict[int, str] = {}
    found: dict[str, list[tuple[Module, str]]] = {}
    for prefix, part in module.named_modules():
        if id(part) in taken:
            continue
        for attribute, p in part._parameters.items():
            name = f"{prefix}.{attribute}" if prefix else attribute
            if p is None or id(p) in ignored:
                continue
            if id(p) in first:
                found[first[id(p)]].append((part, attribute))
                continue
            if isinstance(p, DTensor):
                raise RuntimeError(
                    f"fully_shard: parameter '{name}' is sharded already. Call fully_shard for parts before the module that "
                    "has them; where two modules share a parameter, call it for one that has both, not for each."
                )
            if type(p) is not Parameter:
                raise NotImplementedError(
                    f"fully_shard: '{name}' is a {type(p).__name__}; what is sharded are Parameters. Run a lazy module once "
                    "before."
                )
            if p.ndim == 0:
                raise ValueError(
                    f"fully_shard doesn't support scalar parameters. Change '{name}' to a 1D tensor with numel equal to 1."
                )
            if p.grad is not None:
                raise RuntimeError(f"fully_shard: parameter '{name}' has a gradient: set it to None before")
            first[id(p)] = name
            found[name] = [(part, attribute)]
    return found


def _sharded(p: Parameter, mesh: DeviceMesh) -> tuple[ShardedParameter, Layout]:
    """Make `p`, which stays the same object, hold this rank's rows."""
    layout = Layout(mesh, [Replicate(), Shard(0)][-mesh.ndim :], tuple(p.shape))
    rows: Any = p._array[layout.rows()]
    sharded: Any = p
    sharded.__class__ = ShardedParameter
    sharded._array = rows if p.is_meta else placed(rows.copy(), layout)
    sharded._layout = layout
    sharded._versions = [p._versions[0] + 1]
    return sharded, layout


@functools.cache
def _class_of(cls: type) -> type:
    """The class that a module of class `cls` becomes."""
    return type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})


class FSDPModule(Module):
    """What a module is in addition after `fully_shard`. All its methods are called on all ranks alike."""

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

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Any:
        for group in self._groups(recurse=True):
            group.reshard()  # what is moved or cast are the rows
        return super()._apply(fn)

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

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """As the argument of `fully_shard`, later."""
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


class UnshardHandle:
    """Parameters that are on their way."""

    def __init__(self, groups: list[Group]) -> None:
        self._groups = groups

    def wait(self) -> None:
        """Return when they are in the modules."""
        for group in self._groups:
            group.gather()


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let the method of that name do before and after it what forward does; nothing for a module that is not sharded."""
    if not isinstance(module, FSDPModule):
        return
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
