"""`all_gather_variable`: the tensors of all ranks, which may have different numbers of rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..autograd.function import Function
from ..core.errors import MismatchError
from ..core.modes import mode
from ..core.tensor import Tensor
from ..ops.shape.stacking import cat
from . import collectives
from .process_group import ProcessGroup, resolve
from .protocol.guard import blaming
from .tensor_work import collective


@collective("tensor")
def all_gather_variable(tensor: Tensor, group: ProcessGroup | None = None) -> list[Tensor]:
    """The tensors of all ranks, by rank, in new memory: (rows of that rank, ...), where rows may be 0.

    Gradients pass through: backward, which all ranks run, sums what the ranks' gradients say of this rank's tensor.
    Memory and messages are those of as many rows on each rank as the longest has. Collective. MismatchError on all ranks
    where dtype, the other dimensions, or whether a gradient is required differ.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"all_gather_variable(): expected a Tensor, got {type(tensor).__name__}")
    g = resolve(group)
    return list(_Gather.apply(g, _rows(tensor, g), tensor))


def _rows(tensor: Tensor, group: ProcessGroup) -> list[int]:
    """The number of rows of each rank. MismatchError where the tensors differ in more than that."""
    graded = mode.enabled and tensor._requires_grad
    told = group.communicator.all_gather_object([list(tensor.shape), tensor.dtype.name, graded])
    kinds = [_described(*each) for each in told]
    expected = Counter(kinds).most_common(1)[0][0]
    wrong = [r for r, (shape, *_) in enumerate(told) if not shape or kinds[r] != expected]
    if not wrong:
        return [shape[0] for shape, *_ in told]
    first = wrong[0]
    like = f"{expected}, as on rank {group.ranks[kinds.index(expected)]}" if told[first][0] else "rows"
    error = MismatchError(
        f"all_gather_variable(): rank {group.ranks[first]} has {kinds[first]}, expected {like}. Ranks may differ in the number "
        "of rows, the first dimension, only: cast, reshape or detach the tensor before the call. A rank that has nothing "
        "gives 0 rows, as tensor[:0] does."
    )
    raise blaming(error, [group.ranks[first]])


def _described(shape: list[int], dtype: str, graded: bool) -> str:
    rows = f"rows of shape {shape[1:]}" if shape else "a tensor without dimensions"
    return f"{rows} of {dtype}{' that require a gradient' if graded else ''}"


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, rows: list[int], tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.rows = group, rows
        mine, longest = tensor.detach(), max(rows)
        if len(mine) < longest:
            mine = cat([mine, mine.new_zeros((longest - len(mine), *mine.shape[1:]))])
        gathered = mine.new_empty((len(rows), *mine.shape))
        collectives.all_gather_into_tensor(gathered, mine, group)
        return tuple(part[:n].clone() for part, n in zip(gathered, rows, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, _Sum.apply(ctx.group, ctx.rows, *grads)


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, rows: list[int], *grads: Tensor) -> Tensor:
        ctx.group, ctx.rows = group, rows
        result = grads[group.rank()].new_empty(grads[group.rank()].shape)
        collectives.reduce_scatter(result, [g.detach() for g in grads], group=group)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_Gather.apply(ctx.group, ctx.rows, grads[0])
