"""Tensor parallelism below DistributedDataParallel, which averages this rank's parts of parameters over replicas of them."""

from __future__ import annotations

from typing import Any

from ....core.tensor import Tensor
from ....nn.modules.module import Module
from ....nn.modules.registration import put
from ....nn.parameter import Parameter
from ...device_mesh import DeviceMesh
from ..dtensor import DTensor


def in_parts(module: Module, mesh: DeviceMesh | None) -> Module:
    """`module` itself. Where other dimensions than `mesh` have divided its parameters, these are this rank's parts from now on."""
    found = [p for p in module.parameters() if isinstance(p, DTensor)]
    if found and mesh is not None and all(mesh._is_beside(p.device_mesh) for p in found):
        _pre_dp_module_transform(module)
    return module


def _pre_dp_module_transform(module: Module) -> None:
    """Let Parameters that are ordinary tensors take the place of DTensors, but within forward, which computes with DTensors."""
    parts: dict[int, tuple[Parameter, Any]] = {}
    places: list[tuple[Module, str, Parameter, Any]] = []
    for owner in module.modules():
        for name, p in owner.named_parameters(recurse=False, remove_duplicate=False):
            if isinstance(p, DTensor):
                own, layout = parts.setdefault(id(p), (Parameter(p.part(), p.requires_grad), p._layout))
                places.append((owner, name, own, layout))
    for owner, name, own, _ in places:
        put(owner, name, own)

    def show(*args: Any) -> None:
        made: dict[int, Tensor] = {}
        for owner, name, own, layout in places:
            if vars(owner)[name] is own:
                if id(own) not in made:
                    made[id(own)] = DTensor.joined(own, layout.mesh, layout.placements, layout.shape)
                put(owner, name, made[id(own)])

    def hide(*args: Any) -> None:
        for owner, name, own, _ in places:
            if isinstance(vars(owner)[name], DTensor):
                put(owner, name, own)

    module.register_forward_pre_hook(show)
    module.register_forward_hook(hide, always_call=True)
