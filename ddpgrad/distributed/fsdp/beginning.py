"""What is settled before a module is sharded: its ranks, its device, values for what is on meta."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...backend.device import Device
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ..device_mesh import DeviceMesh, init_device_mesh
from ..process_group import get_world_size, resolve
from ..ranks.world import current
from ..tensor import DTensor


def device_kind(module: Module, device: Device | None = None) -> str:
    """How a mesh of the ranks that have `module` is called: by `device`, or by where a parameter lies."""
    places = [device] if device is not None else [p.device for p in module.parameters() if not p.is_meta]
    return places[0].type if places else "cpu"


def flat_mesh(group: Any, kind: str) -> DeviceMesh:
    """The ranks that have different rows."""
    if isinstance(group, (tuple, list)):
        raise ValueError("FullyShardedDataParallel: a pair of process groups is for HYBRID_SHARD")
    return DeviceMesh.from_group(resolve(group), kind)


def hybrid_mesh(groups: Any, kind: str) -> DeviceMesh:
    """The mesh of (the group that shards, the group that replicates); of hosts and their ranks where these are not given."""
    if groups is None:
        ranks, here = get_world_size(), current().local_world_size
        if ranks % here:
            raise ValueError(
                f"FullyShardedDataParallel: {ranks} ranks on hosts of which this one has {here} are no grid: pass device_mesh of two dimensions"
            )
        return init_device_mesh(kind, (ranks // here, here))
    if not isinstance(groups, (tuple, list)) or len(groups) != 2:
        raise ValueError(
            f"FullyShardedDataParallel: HYBRID_SHARD takes process_group=(the group that shards, the group that replicates), got {groups}"
        )
    shards, replicas = map(resolve, groups)
    rows = replicas.communicator.all_gather_object(list(shards.ranks))
    return DeviceMesh.from_group([replicas, shards], kind, rows)


def materialise(module: Module, init: Callable[[Module], None] | None, device: Device | None) -> None:
    """Give parameters and buffers on meta memory and values, module by module; by default on `device`, or the CPU."""
    for part in module.modules():
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if not any(t.is_meta for t in own):
            continue
        if init is not None:
            init(part)
        elif hasattr(part, "reset_parameters"):
            part.to_empty(device=device or "cpu", recurse=False)
            part.reset_parameters()
        else:
            raise ValueError(
                f"FullyShardedDataParallel: a {type(part).__name__} has parameters on meta and no reset_parameters(): pass "
                "param_init_fn=, which gives them memory and values"
            )


def move(module: Module, device: Device, ignored: Iterable[Tensor]) -> None:
    """Put parameters and buffers on `device`, but for those to ignore and those that were sharded before."""
    alone = {id(t) for t in ignored}
    for p in module.parameters():
        if id(p) not in alone and not isinstance(p, DTensor) and p.device != device:
            p.data = p.data.to(device)
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if id(buffer) not in alone and buffer.device != device:
                setattr(part, name, buffer.to(device))
