"""`input_reshard`: what backward needs of a module whose inputs all ranks have alike is kept in parts."""

from __future__ import annotations

from typing import Any

from ....autograd.graph import saved_tensors_hooks
from ....core.tensor import Tensor
from ....nn.modules.module import Module
from ....nn.parameter import Parameter
from ...device_mesh import DeviceMesh
from ..dtensor import DTensor
from ..layout import Replicate, Shard


def input_reshard(module: Module, tp_device_mesh: DeviceMesh, input_reshard_dim: int | None = None) -> Module:
    """`module`, of whose saved tensors each rank of the mesh keeps a part along `input_reshard_dim`; backward gathers them.

    It holds for tensors that all ranks have alike, other than parameters, and that have a row for each rank; None: for none.
    """
    if input_reshard_dim is None:
        return module
    dim, mesh, opened = input_reshard_dim, tp_device_mesh, []

    def pack(x: Tensor) -> Any:
        if isinstance(x, (DTensor, Parameter)) or x.ndim <= dim or x.shape[dim] < mesh.size():
            return x
        whole = DTensor.from_local(x.detach(), mesh, [Replicate()])
        part = whole.redistribute(placements=[Shard(dim)]).to_local()
        return part.clone(), x.shape, x.stride()

    def unpack(kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        part, shape, stride = kept
        return DTensor.from_local(part, mesh, [Shard(dim)], shape=shape, stride=stride).full_tensor()

    def begin(*_: Any) -> None:
        opened.append(saved_tensors_hooks(pack, unpack))
        opened[-1].__enter__()

    def end(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(end, always_call=True)
    return module
