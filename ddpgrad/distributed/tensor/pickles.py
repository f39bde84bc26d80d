"""DTensors in pickles and files: this rank's part, the mesh, and how the whole lies on it.

A mesh is told by its ranks. Where a DTensor is loaded the process groups along it have to be there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.tensor import Tensor
from ...files.safe_globals import declare_safe
from ..device_mesh import mesh_again
from .layout import Partial, Placement, Replicate, Shard, _StridedShard, layout_of


def taken_apart(tensor: Any, parameter: bool) -> Any:
    """What `__reduce_ex__` returns."""
    attributes = {name: value for name, value in tensor.__dict__.items() if name != "_placed_as"}
    described = tuple(tensor.shape), tensor.device_mesh, tensor.placements
    return dtensor_again, (tensor.part(), *described, tensor.requires_grad, parameter, attributes)


def dtensor_again(
    part: Tensor,
    shape: Sequence[int],
    mesh: Any,
    placements: Sequence[Placement],
    requires_grad: bool,
    parameter: bool,
    attributes: dict[str, Any],
) -> Tensor:
    """The DTensor that was taken apart; ValueError where this rank has another part than the one that it was saved by."""
    from .dtensor import DTensor, ShardedParameter, computing, dtensor  # here, as that imports this

    computing()
    layout = layout_of(mesh, placements, shape)
    if tuple(part.shape) != layout.part_shape:
        raise ValueError(
            f"a DTensor of shape {list(shape)}, {list(placements)}, was saved by a rank that had a part of shape {list(part.shape)}, "
            f"and is loaded by one that has {list(layout.part_shape)}: a rank loads the file that it saved itself; "
            "torch.distributed.checkpoint loads others"
        )
    out = dtensor(part._array, layout, ShardedParameter if parameter else DTensor)
    out._requires_grad = requires_grad
    out.__dict__.update(attributes)
    return out


declare_safe(dtensor_again, mesh_again, Shard, Replicate, Partial, _StridedShard)
