"""Gradients of a DTensor's part, and of all of it, for programs that compute with these: a DTensor itself has no history."""

from __future__ import annotations

from typing import Any

from ...autograd.function import Function
from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor, wrap


class _Local(Function):
    """`to_local`, whose backward gives a leaf its gradient: the engine adds up arrays, and has no part of one."""

    @staticmethod
    def forward(ctx: Any, whole: Any) -> Tensor:
        ctx.whole = whole
        return whole.part()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _give(ctx.whole, grads[0]._array)


class _Whole(Function):
    """`full_tensor`, likewise."""

    @staticmethod
    def forward(ctx: Any, whole: Any) -> Tensor:
        ctx.whole = whole
        return whole.whole()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _give(ctx.whole, grads[0]._array[ctx.whole._layout.index])


def _give(leaf: Any, part: Any) -> None:
    """Add `part` to this rank's part of the leaf's gradient."""
    with no_grad():
        if leaf.grad is None:
            leaf.grad = leaf._with(part.copy())
        else:
            leaf.grad.part().add_(wrap(part))


part_of = _Local.apply
whole_of = _Whole.apply
