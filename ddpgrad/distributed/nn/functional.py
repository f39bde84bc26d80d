"""Collectives that gradients pass through: each returns new tensors, and its backward is a collective too.

Source of names and arguments: torch.distributed.nn.functional. A program that calls one in
forward on all ranks calls its counterpart in backward on all ranks, and so every rank must
run that backward. What a rank receives is differentiable again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.function import Function
from ...core.tensor import Tensor
from ...ops.creation.factories import zeros_like
from .. import collectives
from ..collectives import ReduceOp
from ..process_group import ProcessGroup, resolve

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce",
    "reduce_scatter", "scatter",
]  # fmt: skip


def broadcast(tensor: Tensor, src: int, group: ProcessGroup | None = None) -> Tensor:
    """The tensor of rank `src`; backward sums the ranks' gradients there."""
    return _Broadcast.apply(src, resolve(group), tensor)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """The sum (or average) on rank `dst`, and an unspecified tensor elsewhere; backward spreads `dst`'s gradient."""
    return _Reduce.apply(dst, _linear("reduce", op), resolve(group), tensor)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """The sum (or average) over all ranks; backward combines the gradients likewise."""
    return _AllReduce.apply(_linear("all_reduce", op), resolve(group), tensor)


def gather(tensor: Tensor, dst: int = 0, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks on rank `dst`, zeros elsewhere."""
    return _Gather.apply(dst, resolve(group), tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: ProcessGroup | None = None) -> Tensor:
    """This rank's entry of rank `src`'s list; other ranks pass a list of tensors of the same shapes."""
    return _Scatter.apply(src, resolve(group), *tensors)


def all_gather(tensor: Tensor, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks; backward sums what the ranks' gradients say of this one."""
    return _AllGather.apply(resolve(group), tensor)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Tensor:
    """The sum (or average), over all ranks, of their `input_list[this rank]`. output: gives shape and dtype."""
    return _ReduceScatter.apply(_linear("reduce_scatter", op), resolve(group), output, *input_list)


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None,
) -> tuple[Tensor, ...]:
    """What each rank has for this one. output_tensor_list: gives the shapes."""
    shapes = [tuple(t.shape) for t in output_tensor_list]
    return _AllToAll.apply(resolve(group), shapes, *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Rows that all ranks have for this one. output: gives the shape."""
    shape = tuple(output.shape)
    return _AllToAllSingle.apply(resolve(group), shape, output_split_sizes, input_split_sizes, input)


def _linear(name: str, op: Any) -> str:
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise ValueError(
            f"distributed.nn.functional.{name}(): op {op!r} has no gradient here; use SUM or AVG, or "
            f"torch.distributed.{name} on detached tensors"
        )
    return op


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        result = tensor.detach().clone()
        collectives.broadcast(result, src, group)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        summed = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, grads[0])
        return None, None, summed if _is(ctx.group, ctx.src) else zeros_like(summed)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: str, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.op, ctx.group = dst, op, group
        result = tensor.detach().clone()
        collectives.reduce(result, dst, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad = _Broadcast.apply(ctx.dst, ctx.group, grads[0])
        return None, None, None, grad / ctx.group.size() if ctx.op == ReduceOp.AVG else grad


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: str, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        result = tensor.detach().clone()
        collectives.all_reduce(result, op, group, label="nn.functional.all_reduce")
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grads[0])


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: ProcessGroup, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.dst, ctx.group = dst, group
        rows = [zeros_like(tensor) for _ in range(group.size())]
        collectives.gather(tensor.detach(), rows if _is(group, dst) else None, dst, group)
        return tuple(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: ProcessGroup, *tensors: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        result = zeros_like(tensors[group.rank()])
        parts = [t.detach().contiguous() for t in tensors]
        collectives.scatter(result, parts if _is(group, src) else None, src, group)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_Gather.apply(ctx.src, ctx.group, grads[0])


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        rows = [zeros_like(tensor) for _ in range(group.size())]
        collectives.all_gather(rows, tensor.detach(), group)
        return tuple(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, grads[ctx.group.rank()], *grads)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: str, group: ProcessGroup, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        result = zeros_like(output)
        collectives.reduce_scatter(result, [t.detach() for t in inputs], op, group)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rows = _AllGather.apply(ctx.group, grads[0])
        if ctx.op == ReduceOp.AVG:
            rows = [row / ctx.group.size() for row in rows]
        return None, None, None, *rows


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, shapes: list[tuple[int, ...]], *inputs: Tensor) -> Any:
        ctx.group, ctx.shapes = group, [tuple(t.shape) for t in inputs]
        outputs = [inputs[0].new_zeros(shape) for shape in shapes]
        collectives.all_to_all(outputs, [t.detach() for t in inputs], group)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(
        ctx: Any,
        group: ProcessGroup,
        shape: tuple[int, ...],
        received: Sequence[int] | None,
        sent: Sequence[int] | None,
        input: Tensor,
    ) -> Tensor:
        ctx.group, ctx.shape, ctx.received, ctx.sent = group, tuple(input.shape), received, sent
        output = input.new_zeros(shape)
        collectives.all_to_all_single(output, input.detach(), received, sent, group)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad = _AllToAllSingle.apply(ctx.group, ctx.shape, ctx.sent, ctx.received, grads[0])
        return None, None, None, None, grad


def _is(group: ProcessGroup, rank: int) -> bool:
    """True on `rank` of the world."""
    return group.ranks[group.rank()] == rank
