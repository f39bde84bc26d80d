"""Tensor parallelism below DistributedDataParallel, which averages this rank's parts of parameters over replicas of them."""

from __future__ import annotations

from typing import Any

from ....core.tensor import Tensor
from ....nn.modules.module import Module
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
    places: list[tuple[dict[str, Any], str, Parameter, Any]] = []
    for owner in module.modules():
        for name, p in owner.named_parameters(recurse=False, remove_duplicate=False):
            if isinstance(p, DTensor):
                own, layout = parts.setdefault(id(p), (Parameter(p.part(), p.requires_grad), p._layout))
                places.append((vars(owner), name, own, layout))
    for attributes, name, own, _ in places:
        attributes[name] = own

    def show(*args: Any) -> None:
        made: dict[int, Tensor] = {}
        for attributes, name, own, layout in places:
            if attributes[name] is own:
                if id(own) not in made:
                    made[id(own)] = DTensor.joined(own, layout.mesh, layout.placements, layout.shape)
                attributes[name] = made[id(own)]

    def hide(*args: Any) -> None:
        for attributes, name, own, _ in places:
            if isinstance(attributes[name], DTensor):
                attributes[name] = own

    module.register_forward_pre_hook(show)
    module.register_forward_hook(hide, always_call=True)
