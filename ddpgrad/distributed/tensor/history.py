"""Gradients across ranks: into a DTensor, out of it, from one placement to another, and into a leaf."""

from __future__ import annotations

from typing import Any

from ...autograd.accumulate import AccumulateGrad
from ...autograd.function import Function
from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor, wrap
from .layout import Layout
from .mesh_array import MeshArray, without_partial
from .mesh_kernels import mesh_array


class _Local(Function):
    """`to_local`, of whose gradient each rank has what `grad_placements` say."""

    @staticmethod
    def forward(ctx: Any, whole: Any, grad_placements: Any) -> Tensor:
        array: MeshArray = whole._array
        ctx.layout = array.layout.placed(
            without_partial(array.placements) if grad_placements is None else grad_placements
        )
        return wrap(array.part)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _Joined.apply(grads[0], ctx.layout, None), None


class _Joined(Function):
    """`from_local`, whose gradient is placed as the tensor is."""

    @staticmethod
    def forward(ctx: Any, part: Any, layout: Layout, grad_placements: Any = None) -> Tensor:
        ctx.placements = without_partial(layout.placements) if grad_placements is None else grad_placements
        return wrap(mesh_array(part._array, layout))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _Local.apply(placed(grads[0], ctx.placements), None), None, None


class _Moved(Function):
    """`redistribute`, whose gradient goes back to where the tensor was."""

    @staticmethod
    def forward(ctx: Any, whole: Any, placements: Any, backward_dtype: Any) -> Tensor:
        array: MeshArray = whole._array
        ctx.placements, ctx.dtypes = without_partial(array.placements), (backward_dtype, whole.dtype)
        return wrap(array.placed(placements))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        travels_in, own = ctx.dtypes
        if travels_in is None:
            return placed(grads[0], ctx.placements), None, None
        return placed(grads[0].to(travels_in).entered(), ctx.placements).to(own), None, None


def placed(tensor: Any, placements: Any, backward_dtype: Any = None) -> Any:
    """`tensor`, whose array is one of ranks, placed otherwise; itself where nothing changes.

    backward_dtype: in which gradients travel, if not in their own.
    """
    array: MeshArray = tensor._array
    if backward_dtype is None and array.layout.placed(placements) is array.layout:
        return tensor
    return _Moved.apply(tensor, tuple(placements), backward_dtype)


local_of = _Local.apply
joined_of = _Joined.apply


class AccumulateParts(AccumulateGrad):
    """The node of a leaf of which each rank has a part: the gradient is brought to where the leaf lies, and added to its own."""

    __slots__ = ()

    def fit(self, array: Any) -> None:
        super().fit(array)
        self.shape = tuple(self.variable.shape)

    def memory(self) -> Any:
        return None

    def apply(self, grad: Any, F: Any) -> tuple[()]:
        leaf: Any = self.variable
        part = grad.placed(without_partial(leaf.placements), "gradient").part
        if leaf._grad is None:
            leaf._grad = leaf.gradient_of(part)
        else:
            with no_grad():
                leaf._grad.part().add_(wrap(part))
        return ()

    def apply_tensor(self, grad: Tensor, F: Any) -> tuple[()]:
        leaf: Any = self.variable
        moved = placed(grad, without_partial(leaf.placements))
        leaf._grad = leaf.shown(moved if leaf._grad is None else moved + leaf._grad.entered())
        return ()


__all__ = ["AccumulateParts", "joined_of", "local_of", "placed"]
