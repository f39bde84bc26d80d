"""Where gradients go: the leaf's node, which adds them to `.grad`, and the edges that lead to it."""

from __future__ import annotations

from typing import Any
from weakref import ref

from ..tensor import Tensor, View, wrap
from .graph import NO_EDGE, Edge, Node, RemovableHandle, next_sequence


class AccumulateGrad(Node):
    """Where backward ends for one leaf. `variable` is the leaf.

    bucket: when set (by the reducer), the view of a flat bucket where the gradient lives:
    the first gradient is copied there, later ones are added there, and `.grad` is that view.
    """

    __slots__ = ("bucket", "variable")

    def __init__(self, variable: Tensor) -> None:
        array = variable._array
        self.next_functions = ()
        self.shape = array.shape
        self.dtype = array.dtype
        self.sequence = next_sequence()
        self.variable = variable
        self.bucket: Tensor | None = None
        variable._accumulator = ref(self)

    def register_hook(self, hook: Any) -> RemovableHandle:
        # Hooks live as long as the leaf: the leaf keeps its node from now on.
        self.variable.__dict__["_accumulator_kept"] = self
        return super().register_hook(hook)

    def apply(self, grad: Any, F: Any) -> tuple[()]:
        """Add a raw array, which the engine guarantees to be ours alone, to the leaf's gradient."""
        leaf = self.variable
        current = leaf._grad
        bucket = self.bucket
        if bucket is not None and (current is None or current is bucket):
            if current is None:
                bucket._array[...] = grad
                leaf._grad = bucket
            else:
                bucket._array += grad
        elif current is None:
            leaf._grad = wrap(grad)
        else:
            current._array += grad
            current._versions[0] += 1
        return ()

    def apply_tensor(self, grad: Tensor, F: Any) -> tuple[()]:
        """As `apply`, for a gradient that carries its own history (create_graph)."""
        leaf = self.variable
        leaf._grad = grad if leaf._grad is None else leaf._grad + grad
        return ()


def accumulator(tensor: Tensor) -> AccumulateGrad:
    """The node where the gradient of a leaf ends; one object as long as anything refers to it."""
    node = None if tensor._accumulator is None else tensor._accumulator()
    return AccumulateGrad(tensor) if node is None else node


def edge_of(tensor: Tensor) -> Edge:
    """Where the gradient of `tensor` goes."""
    if not tensor._requires_grad:
        return NO_EDGE
    if tensor._view is not None and tensor._view.root is not tensor._view.base._grad_fn:
        refresh_view(tensor)
    node = tensor._grad_fn
    return (accumulator(tensor), 0) if node is None else (node, tensor._output_nr)


def refresh_view(tensor: Tensor) -> None:
    """Make the history of a view again after its base was changed in place through another name."""
    view = tensor._view
    assert view is not None
    again = view.base
    for op, args in view.steps:
        again = op(again, *args)
    tensor._view = View(view.base, view.steps, view.base._grad_fn)
    tensor._grad_fn, tensor._output_nr = again._grad_fn, again._output_nr
    tensor._requires_grad = again._requires_grad
