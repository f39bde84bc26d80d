"""Where gradients go: the leaf's node, which adds them to `.grad`, and the edges that lead to it."""

from __future__ import annotations

from typing import Any
from weakref import ref

from .._tensor import Tensor, wrap
from ..errors import GraphError
from .grad_mode import mode
from .nodes import NO_EDGE, RETAIN, Edge, Node, RemovableHandle, next_sequence


class AccumulateGrad(Node):
    """Where backward ends for one leaf. `variable` is the leaf.

    The leaf knows its node weakly, so that no cycle keeps either alive; the hooks of the node
    are the leaf's, and a later node of the same leaf has them too.

    bucket: when set (by the reducer), the view of a flat bucket where the gradient lives:
    the first gradient is copied there, later ones are added there, and `.grad` is that view.
    """

    __slots__ = ("bucket", "variable")

    def __init__(self, variable: Tensor) -> None:
        array = variable._array
        self.edges = ()
        self.shape = array.shape
        self.dtype = array.dtype
        self.sequence = next_sequence()
        self.variable = variable
        self.bucket: Tensor | None = None
        variable._accumulator = ref(self)
        if variable._accumulator_hooks is not None:
            self._hooks, self._prehooks = variable._accumulator_hooks

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def register_hook(self, hook: Any) -> RemovableHandle:
        self._lend_hooks()
        return super().register_hook(hook)

    def register_prehook(self, hook: Any) -> RemovableHandle:
        self._lend_hooks()
        return super().register_prehook(hook)

    def _lend_hooks(self) -> None:
        leaf = self.variable
        if leaf._accumulator_hooks is None:
            leaf._accumulator_hooks = self._hooks, self._prehooks = {}, {}

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
            bucket._versions[0] += 1
        elif current is None:
            leaf._grad = wrap(grad)
        else:
            current._array += grad
            current._versions[0] += 1
        return ()

    def apply_tensor(self, grad: Tensor, F: Any) -> tuple[()]:
        """As `apply`, for a gradient that carries its own history (create_graph)."""
        leaf = self.variable
        # A clone: the same tensor may be the gradient of other leaves, which later add to theirs in place.
        leaf._grad = F.clone(grad) if leaf._grad is None else leaf._grad + grad
        return ()


def accumulator(tensor: Tensor) -> AccumulateGrad:
    """The node where the gradient of a leaf ends; one object as long as anything refers to it."""
    node = None if tensor._accumulator is None else tensor._accumulator()
    return AccumulateGrad(tensor) if node is None else node


def edge_of(tensor: Tensor) -> Edge:
    """Where the gradient of `tensor` goes."""
    if not tensor._requires_grad:
        return NO_EDGE
    view = tensor._view
    if view is not None:
        origin = view.base._grad_fn
        # A base that was detached since (origin None) leaves its views the history that they have.
        if origin is not view.root and origin is not None:
            refresh_view(tensor)
    node = tensor._grad_fn
    if node is not None:
        return node, tensor._output_nr
    weak = tensor._accumulator
    leaf = None if weak is None else weak()
    return (AccumulateGrad(tensor) if leaf is None else leaf), 0


def refresh_view(tensor: Tensor) -> None:
    """Make the history of a view again after its base was changed in place through another name."""
    view = tensor._view
    assert view is not None
    if view.steps is None:
        raise GraphError(
            "a view that a custom Function returned is used after the tensor that it views was modified in place: "
            "what the Function would return now is not known. Return a clone() from its forward()."
        )
    previous, mode.enabled = mode.enabled, True
    try:
        again = view.base
        for op, args in view.steps:
            again = op(again, *args)
    finally:
        mode.enabled = previous
    if again._array.shape != tensor._array.shape or again.data_ptr() != tensor.data_ptr():
        raise GraphError(
            f"a view of shape {list(tensor.shape)} is used after its base was written to and given another shape in "
            "place (t_(), squeeze_() …): how to make it again is not known. Make the view after that."
        )
    tensor._view = view._replace(root=view.base._grad_fn)
    node, nr = edge_of(again)
    assert node is not None
    set_history(tensor, node, nr)


def tensor_at(array: Any, edge: Edge) -> Tensor:
    """A kept array as a tensor again, joined to the graph where `edge` says."""
    node, nr = edge
    if node is None:
        return wrap(array)
    if isinstance(node, AccumulateGrad) and node.variable._array is array:
        return node.variable
    t = wrap(array)
    t._requires_grad = True
    if isinstance(node, AccumulateGrad):
        # A cast or moved copy of a leaf: its gradient goes where the leaf's goes.
        t._accumulator = node.variable._accumulator
        t.__dict__["_accumulator_kept"] = node
    else:
        t._grad_fn, t._output_nr = node, nr
    return t


def set_history(tensor: Tensor, node: Node, output_nr: int = 0) -> None:
    """Make `tensor` output `output_nr` of `node`: what an in-place operation does to its target."""
    if tensor._retains_grad and tensor._grad_fn is not None:
        keep = tensor._grad_fn.tensor_hooks(tensor._output_nr).pop(RETAIN, None)
        if keep is not None:
            node.tensor_hooks(output_nr)[RETAIN] = keep
    tensor._grad_fn, tensor._output_nr, tensor._requires_grad = node, output_nr, True
