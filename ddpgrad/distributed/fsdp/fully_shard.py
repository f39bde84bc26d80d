"""`fully_shard`: parameters, gradients and optimizer state divided among the ranks.

Source of names and behaviour: https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (FSDP2); of the idea:
https://arxiv.org/abs/1910.02054 (stages 2 and 3)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from ...backend.device import Device
from ...core.tensor import Tensor
from ...nn.modules.container import ModuleDict, ModuleList
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ..communicator.communicator import Communicator
from ..ddp.averages import checked_action
from ..ddp.data_parallel import DistributedDataParallel
from ..ddp.model_check import check_module, verify, wrapped_part
from ..ddp.replica_check import broadcast
from ..device_mesh import DeviceMesh, init_device_mesh
from ..process_group import get_world_size, init_process_group, is_initialized
from ..tensor.dtensor import DTensor
from ..tensor.layout import Layout, Replicate, Shard, layout_of
from .beginning import device_kind
from .group import Group
from .member import Member
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from .sharded_module import FSDPModule, ReplicateModule, class_of
from .state import State, states_below

M = TypeVar("M", bound=Module | list[Any])


def fully_shard(
    module: M,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Parameter], Shard | None] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: Iterable[Tensor] | None = None,
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

    module: or a list of modules, whose parameters form one group. It is dropped when all of them have run, or the forward of the
    module around them has ended.
    mesh: the ranks, by default the world. On a mesh of two dimensions parameters are divided along the second, and each line
    along the first has replicas: `init_device_mesh("cpu", (R, S), mesh_dim_names=("replicate", "shard"))`. Gradients are averages
    over all R x S ranks, with the bits that DistributedDataParallel gives these. Parameters that `parallelize_module` has divided on
    another dimension of the same mesh are divided once more, and lie on both: `fully_shard(model, mesh=mesh_2d["dp"])`. reshard_after_forward: False keeps whole
    parameters from forward to backward; None is False for the module that is used by itself, and True for those below it. A number, a
    factor of the ranks: parameters stay divided among so many neighbouring ranks, which gather them for backward.
    shard_placement_fn: gets each parameter, and says what `Shard` divides it; None is `Shard(0)`, and another dimension has to be a
    multiple of the ranks.
    mp_policy: see `MixedPrecisionPolicy`. offload_policy: see `CPUOffloadPolicy`. ignored_params: each rank's own.
    nonfinite_gradients: as for DistributedDataParallel, said in the outermost call; it costs a pass over this rank's part of the
    averages and a collective of a byte. Hooks of `register_post_accumulate_grad_hook` then come when all averages are known.
    Parameters on meta get values later: `module.to_empty(device="cuda")`, then `reset_parameters` or `load_state_dict`.

    Parameters may lie on GPUs, all of a model on one, and stay there from its first use on: their rows, gradients and optimizer
    state do so too. They travel as those of DistributedDataParallel do, by NCCL or through host memory, and sums have the order
    of the tree either way. Buffers are each rank's own after the beginning.
    Raises ValueError for what cannot be sharded, RuntimeError for what is already, MismatchError where ranks differ.
    """
    modules = _checked(module)
    mesh = _mesh_for(modules, mesh)
    if mesh.ndim > 2:
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    checked_action("fully_shard", nonfinite_gradients)
    _form(
        modules,
        FSDPModule,
        mesh,
        None,
        reshard_after_forward,
        shard_placement_fn,
        mp_policy,
        offload_policy,
        ignored_params,
        nonfinite_gradients,
    )
    return module


def replicate(
    module: M,
    *,
    mesh: DeviceMesh | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: Iterable[Tensor] | None = None,
) -> M:
    """As `fully_shard`, where every rank of `mesh`, which has one dimension, keeps all: parameters are DTensors and `Replicate()`.

    It averages as DistributedDataParallel does, with the methods and precisions of `fully_shard`. What tensor parallelism has
    divided on another dimension of the mesh stays so.
    """
    modules = _checked(module)
    mesh = _mesh_for(modules, mesh)
    if mesh.ndim != 1:
        raise ValueError(f"replicate expects a 1D DeviceMesh but got {mesh}")
    _form(
        modules,
        ReplicateModule,
        mesh._with_one(),
        mesh,
        False,
        None,
        mp_policy,
        offload_policy,
        ignored_params,
        None,
    )
    return module


def _mesh_for(modules: Sequence[Module], mesh: DeviceMesh | None) -> DeviceMesh:
    """`mesh`, or that of all ranks."""
    if mesh is None:
        if not is_initialized():
            init_process_group()
        mesh = init_device_mesh(device_kind(modules[0]), (get_world_size(),))
    return mesh


def _form(
    modules: list[Module],
    kind: type[FSDPModule],
    mesh: DeviceMesh,
    replicas: DeviceMesh | None,
    reshard_after_forward: Any,
    shard_placement_fn: Callable[[Parameter], Shard | None] | None,
    mp_policy: MixedPrecisionPolicy | None,
    offload_policy: OffloadPolicy | None,
    ignored_params: Iterable[Tensor] | None,
    nonfinite_gradients: str | None,
) -> None:
    """Make the parameters of `modules` a group. replicas: on which mesh all ranks have all of them, if they do."""
    policy = mp_policy or MixedPrecisionPolicy()
    reshards, few = _after_forward(reshard_after_forward, mesh)
    c = mesh._flatten().get_group().communicator
    found = _own_parameters(modules, {id(p) for p in ignored_params or ()}, mesh)
    gpu = _gpu(modules, mesh) if isinstance(offload_policy, CPUOffloadPolicy) else None
    options = {
        "reshard_after_forward": reshard_after_forward,
        "param_dtype": str(policy.param_dtype),
        "reduce_dtype": str(policy.reduce_dtype),
        "nonfinite_gradients": nonfinite_gradients,
    }
    layouts = {name: _layout(name, own.p, mesh, shard_placement_fn) for name, own in found.items()}
    parts = [
        _part(t) for t in [own.p for own in found.values()] + [b for part in modules for b in part.buffers()]
    ]
    verify(c, [(name, own.p) for name, own in found.items()], options, "fully_shard")
    broadcast(c, [part for part in parts if not part.is_meta], "parameters and buffers of rank 0")
    by_dtype: dict[Any, list[Member]] = {}
    for name, (p, places) in found.items():
        member = Member(name, places, p, layouts[name], gpu is not None, replicas)
        by_dtype.setdefault(p.dtype, []).append(member)
    groups = [Group(members, policy, reshards is not False, few, gpu) for members in by_dtype.values()]
    if gpu is not None:
        for part in (inner for module in modules for inner in module.modules()):
            for name, buffer in part.named_buffers(recurse=False):
                setattr(part, name, buffer if buffer.is_meta else buffer.to(gpu))
    state = State(modules, groups, policy, mesh, reshards, nonfinite_gradients)
    for part in modules:
        vars(part)["_fsdp_state"] = state
        part.__class__ = class_of(type(part), kind)
    state.listen()


def _checked(module: Any) -> list[Module]:
    """The modules that form a group: those given, but for what lies below another one of them."""
    given = list(module) if isinstance(module, (list, tuple)) else [module]
    if not given:
        raise ValueError("fully_shard takes a Module, or a list of some, got an empty list")
    for part in given:
        check_module(part, "fully_shard")
        if (wrapped := wrapped_part(part, DistributedDataParallel)) is not None:
            raise RuntimeError(
                f"fully_shard: {wrapped}: fully_shard averages gradients itself, use ddp.module"
            )
        if isinstance(part, FSDPModule):
            raise RuntimeError(
                f"fully_shard was called for this {type(part).__name__} already: once is enough"
            )
        if isinstance(part, (ModuleList, ModuleDict)):
            raise ValueError(
                f"fully_shard does not support containers that do not implement forward: call it for what the "
                f"{type(part).__name__} holds"
            )
    below = {id(inner) for part in given for inner in part.modules() if inner is not part}
    return list({id(part): part for part in given if id(part) not in below}.values())


def _after_forward(told: Any, mesh: DeviceMesh) -> tuple[bool | None, Communicator | None]:
    """Whether parameters are dropped after forward, and the ranks among which they stay divided, if not all."""
    if told is None or isinstance(told, bool):
        return told, None
    ranks = mesh.size(mesh.ndim - 1)
    if not isinstance(told, int):
        raise ValueError(
            f"reshard_after_forward should be a bool or an int representing the group size to reshard to, not {told}"
        )
    if told < 1 or told > ranks or ranks % told:
        raise ValueError(
            f"If passing reshard_after_forward as an int, it should be a factor of {ranks}, not {told}"
        )
    if told in (1, ranks):
        same = told != 1
        warnings.warn(
            f"fully_shard: reshard_after_forward={told} of {ranks} ranks means the same as {same}: pass that",
            stacklevel=3,
        )
        return same, None
    return True, mesh._divided(told).communicator


def _gpu(modules: Sequence[Module], mesh: DeviceMesh) -> Device | None:
    """The GPU that computes: on which parameters lie, or the current one of a mesh of GPUs; None if all is on the CPU."""
    places = [p.device for module in modules for p in module.parameters() if p.is_cuda]
    if not places and mesh.device_type == "cuda":
        from ...cuda.devices import current_device  # here, as it asks for CuPy

        places = [Device("cuda", current_device())]
    return places[0] if places else None


class _Own(NamedTuple):
    """A parameter, and the modules that have it with their names for it."""

    p: Parameter
    places: list[tuple[Module, str]]


def _own_parameters(modules: Sequence[Module], ignored: set[int], mesh: DeviceMesh) -> dict[str, _Own]:
    """By name, the parameters that form the modules' group."""
    taken: set[int] = set()  # of modules that were sharded by themselves
    for state in (state for module in modules for state in states_below(module)):
        taken.update(id(inner) for module in state.modules for inner in module.modules())
    found: dict[int, tuple[str, _Own]] = {}
    for number, module in enumerate(modules):
        for path, part in module.named_modules(prefix=f"[{number}]" if len(modules) > 1 else ""):
            for attribute, p in () if id(part) in taken else part._parameters.items():
                if p is None or id(p) in ignored:
                    continue
                if id(p) in found:
                    found[id(p)][1].places.append((part, attribute))
                    continue
                name = f"{path}.{attribute}".removeprefix(".")
                _check(name, p, mesh)
                found[id(p)] = name, _Own(p, [(part, attribute)])
    return dict(found.values())


def _part(t: Tensor) -> Tensor:
    """What this rank has of `t`, in the same memory."""
    return t.part() if isinstance(t, DTensor) else t


def _check_mesh(name: str, own: DeviceMesh, mesh: DeviceMesh) -> None:
    """What `own` divides already, other dimensions of the same mesh may divide once more."""
    if own == mesh:
        raise RuntimeError(
            f"fully_shard: parameter '{name}' is sharded already. Call fully_shard for parts before the module that "
            "has them; where two modules share a parameter, call it for one that has both, or for a list of both."
        )
    if not mesh._is_beside(own):
        raise RuntimeError(
            f"fully_shard: parameter '{name}' is a DTensor on {own}: pass another dimension of the same mesh, such as "
            f"mesh_2d['dp'] beside mesh_2d['tp'], got {mesh}"
        )


def _check(name: str, p: Parameter, mesh: DeviceMesh) -> None:
    if isinstance(p, DTensor):
        _check_mesh(name, p.device_mesh, mesh)
    elif type(p) is not Parameter:
        raise NotImplementedError(
            f"fully_shard: '{name}' is a {type(p).__name__}; what is sharded are Parameters. Run a lazy module once "
            "before."
        )
    if p.ndim == 0:
        raise ValueError(
            f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1."
        )
    if p.grad is not None:
        raise RuntimeError(f"fully_shard: parameter '{name}' has a gradient: set it to None before")


def _layout(name: str, p: Parameter, mesh: DeviceMesh, choose: Callable[[Parameter], Any] | None) -> Layout:
    placement = choose(p) if choose is not None else None
    if not isinstance(placement, (Shard, type(None))):
        raise ValueError(
            f"fully_shard: shard_placement_fn gave {placement!r} for '{name}'; expected a Shard or None"
        )
    shape = p._layout.part_shape if isinstance(p, DTensor) else p.shape
    return layout_of(mesh, [Replicate(), placement or Shard(0)][-mesh.ndim :], shape).require_equal_parts()
