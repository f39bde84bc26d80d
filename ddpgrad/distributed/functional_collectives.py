"""Collectives that return new tensors, and that gradients pass through: `torch.distributed._functional_collectives`.

They are complete when they return, so that `wait_tensor` has nothing to wait for. A group may be a ProcessGroup or its
name, a DeviceMesh of one dimension, a mesh and one of its dimensions, or a list of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.function import Function
from ..autograd.grad_mode import is_grad_enabled
from ..core.tensor import Tensor
from ..ops.shape.stacking import cat
from . import collectives
from .device_mesh import DeviceMesh
from .nn import functional
from .older_names import _resolve_process_group
from .process_group import ProcessGroup, default_group, new_group
from .reduce_op import ReduceOp

Group = ProcessGroup | str | DeviceMesh | tuple[DeviceMesh, int] | list[int]
_LINEAR = (ReduceOp.SUM, ReduceOp.AVG)


class AsyncCollectiveTensor(Tensor):
    """What PyTorch returns while a collective is under way. There is none here."""


def wait_tensor(tensor: Tensor) -> Tensor:
    """`tensor`, which is there."""
    return tensor


def all_reduce(self: Tensor, reduceOp: str, group: Group, tag: str = "") -> Tensor:
    """The ranks' tensors combined by `reduceOp`, such as "sum"; backward combines gradients of sums and averages likewise."""
    op, g = _op(reduceOp), _group(group)
    if op in _LINEAR or (self.requires_grad and is_grad_enabled()):
        return functional.all_reduce(self, op, g)
    result = self.detach().clone()
    collectives.all_reduce(result, op, g)
    return result


def broadcast(self: Tensor, src: int, group: Group, tag: str = "") -> Tensor:
    """The tensor of rank `src`; each rank's gradient is what it gets, as in PyTorch."""
    return _Broadcast.apply(src, _group(group), self)


def all_gather_tensor(self: Tensor, gather_dim: int, group: Group, tag: str = "") -> Tensor:
    """The ranks' tensors joined along `gather_dim`."""
    return cat(list(functional.all_gather(self.contiguous(), _group(group))), gather_dim)


def reduce_scatter_tensor(
    self: Tensor, reduceOp: str, scatter_dim: int, group: Group, tag: str = ""
) -> Tensor:
    """This rank's part, along `scatter_dim`, of the ranks' tensors combined by `reduceOp`."""
    op, g = _op(reduceOp), _group(group)
    size = self.shape[scatter_dim]
    if size % g.size():
        raise AssertionError(
            f"input dimension {scatter_dim} ({size}) must be a multiple of group_size {g.size()}"
        )
    parts = [part.contiguous() for part in self.chunk(g.size(), scatter_dim)]
    if op in _LINEAR or (self.requires_grad and is_grad_enabled()):
        return functional.reduce_scatter(parts[g.rank()], parts, op, g)
    result = parts[g.rank()].detach().clone()
    collectives.reduce_scatter(result, parts, op, g)
    return result


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Group,
    tag: str = "",
) -> Tensor:
    """Rows that all ranks have for this one, in turn."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    room = self.detach().new_empty((rows, *self.shape[1:]))
    return functional.all_to_all_single(
        room, self.contiguous(), output_split_sizes, input_split_sizes, _group(group)
    )


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Group, tag: str = "") -> Tensor:
    """The tensor of the rank i whose `src_dst[i]` is this one."""
    g = _group(group)
    count = self.numel()
    sent = [count * (rank == src_dst[g.rank()]) for rank in range(g.size())]
    got = [count * (target == g.rank()) for target in src_dst]
    return all_to_all_single(self.reshape(-1), got, sent, g).reshape(self.shape)


def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: str, group: Group, tag: str = "") -> list[Tensor]:
    """`all_reduce` of each."""
    g = _group(group)
    return [all_reduce(t, reduceOp, g) for t in self]


def all_gather_into_tensor_coalesced(self: Sequence[Tensor], group: Group, tag: str = "") -> list[Tensor]:
    """`all_gather_tensor` of each, along the first dimension."""
    g = _group(group)
    return [all_gather_tensor(t, 0, g) for t in self]


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor], reduceOp: str, scatter_dim: Sequence[int], group: Group, tag: str = ""
) -> list[Tensor]:
    """`reduce_scatter_tensor` of each, along its `scatter_dim`."""
    g = _group(group)
    return [reduce_scatter_tensor(t, reduceOp, dim, g) for t, dim in zip(inputs, scatter_dim, strict=True)]


all_gather_tensor_autograd = all_gather_tensor
all_gather_single = all_gather_tensor
all_to_all_single_autograd = all_to_all_single
reduce_scatter_tensor_autograd = reduce_scatter_tensor
reduce_scatter_single = reduce_scatter_tensor


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: ProcessGroup, tensor: Tensor) -> Tensor:
        result = tensor.detach().clone()
        collectives.broadcast(result, src, group)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, grads[0]


def _op(name: str) -> ReduceOp:
    try:
        return ReduceOp(name.lower())
    except ValueError as error:
        raise RuntimeError(str(error)) from None


def _group(group: Any) -> ProcessGroup:
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, str):
        return _resolve_process_group(group)
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, (list, tuple)) and group:
        if isinstance(group[0], DeviceMesh):
            return group[0].get_group(group[1])
        if all(isinstance(rank, int) for rank in group):
            whole = list(default_group().ranks) == list(group)
            return default_group() if whole else new_group(group, use_local_synchronization=True)
    raise ValueError(
        f"expected a ProcessGroup, its name, a DeviceMesh, a mesh and a dimension, or a list of ranks, got {group!r}"
    )
