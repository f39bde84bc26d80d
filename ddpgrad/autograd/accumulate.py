"""AccumulateGrad: the leaf's node, which adds gradients to `.grad`; and the edges that lead to it."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any
from weakref import ref

from ..backend.dtype import DType
from ..backend.layout import lies_like_leaf, room_for_gradient
from ..backend.registry import SparseArray
from ..core.dispatching import DisableTorchDispatch, is_told, telling
from ..core.errors import GraphError
from ..core.tensor import Tensor, wrap
from ..core.view import View
from .grad_mode import mode
from .nodes import NO_EDGE, RETAIN, Edge, Node, RemovableHandle, next_sequence
from .passes import only_misses


class AccumulateGrad(Node):
    """Where backward ends for one leaf. `variable` is the leaf.

    The leaf knows its node weakly, so that no cycle keeps either alive; the hooks of the node
    are the leaf's, and a later node of the same leaf has them too.

    bucket: when set (by the reducer), the view of a flat bucket where the gradient lives:
    the first gradient is copied there, later ones are added there, and `.grad` is that view. room: that bucket.
    filled: called after each gradient, when the hooks have been; the reducer's as well, which costs less than a hook.
    """

    __slots__ = ("bucket", "filled", "room", "variable")

    def __init__(self, variable: Tensor) -> None:
        self.edges = ()
        self.variable = variable
        self.fit(variable._array)
        self.sequence = next_sequence()
        self.bucket: Tensor | None = None
        self.room: Any = None
        self.filled: Callable[[], object] | None = None
        variable._accumulator = ref(self)
        if variable._accumulator_hooks is not None:
            self._hooks, self._prehooks = variable._accumulator_hooks

    def fit(self, array: Any) -> None:
        """Bring gradients to the shape of `array`, and to its dtype if the leaf has no other `grad_dtype`."""
        asked = self.variable._grad_dtype
        self.shape = array.shape
        self.dtype = array.dtype if asked is ... else asked and asked.numpy

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

    def memory(self) -> Any:
        """The bucket's, if contiguous, for the one node whose gradient is all that comes, and that nobody looks at on its way."""
        leaf = self.variable
        if self.bucket is None or leaf._grad is not None or leaf._hooks or self._hooks or self._prehooks:
            return None
        contiguous = self.bucket._array.flags.c_contiguous
        return self.free_bucket()._array if contiguous and only_misses(self) else None

    def free_bucket(self) -> Tensor:
        """The bucket's view, which is to have a first gradient: another one, where the program keeps an earlier gradient."""
        assert self.bucket is not None
        # The node, the bucket and the argument itself refer to it; its views, and what it was detached as, to its counter.
        counter: Any = self.bucket._versions
        if getrefcount(self.bucket) > 3 or getrefcount(counter) > 3 or (counter.lent and counter.borrowers()):
            del counter  # whether others refer to it is asked for again
            renewed: Tensor = self.room.renewed(self.bucket)
            self.bucket = renewed
        return self.bucket

    def apply(self, grad: Any, F: Any) -> tuple[()]:
        """Add a raw array, which the engine guarantees to be ours alone, to the leaf's gradient."""
        leaf = self.variable
        current = leaf._grad
        if self.bucket is not None and (current is None or current is self.bucket):
            if current is not None:
                current._array += grad
            elif grad is self.bucket._array:
                current = leaf._grad = self.bucket
            else:
                current = leaf._grad = self.free_bucket()
                F.overwrite(current._array, grad)
            current._versions[0] += 1
        elif current is None:
            own = leaf._array
            # As in PyTorch, so that programs may view the gradient of a contiguous parameter as a vector.
            if (
                grad.__class__ is own.__class__
                and grad.strides != own.strides
                and not lies_like_leaf(grad, own)
            ):
                moved = room_for_gradient(own, grad)
                F.overwrite(moved, grad)
                grad = moved
            leaf._grad = wrap(grad)
        else:
            array = current._array
            if array.shape != grad.shape or 0 in array.strides:
                _check_addable(array, grad)
            array += grad
            if array is not current._array:  # of a sparse gradient and a dense one, a tensor of its own
                leaf._grad = wrap(array)
                return ()
            current._versions[0] += 1
        return ()

    def apply_tensor(self, grad: Tensor, F: Any) -> tuple[()]:
        """As `apply`, for a gradient that carries its own history (create_graph)."""
        leaf, sparse = self.variable, isinstance(grad._array, SparseArray)
        if telling and is_told((grad,), {}):
            _keep_told(leaf, grad)
            return ()
        if leaf._grad is None:
            # A copy: the same tensor may be the gradient of other leaves, which later add to theirs in place.
            leaf._grad = (
                F.clone(grad) if sparse else wrap(room_for_gradient(leaf._array, grad._array)).copy_(grad)
            )
        else:
            leaf._grad = leaf._grad + grad if sparse else grad + leaf._grad
        return ()


def _keep_told(leaf: Tensor, grad: Tensor) -> None:
    """Add a gradient that somebody is told of, which may be of a class of its own."""
    if leaf._grad is not None:
        leaf._grad = grad + leaf._grad if mode.enabled else leaf._grad.add_(grad)
        return
    if grad.__class__ is Tensor:
        with DisableTorchDispatch():  # a copy, as above
            grad = grad.clone()
    leaf._grad = grad.detach()


def grad_dtype(self: Tensor) -> DType | None:
    """What gradients of a leaf are cast to as they arrive; None: they stay what they come as."""
    if self._grad_fn is not None:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    return self.dtype if self._grad_dtype is ... else self._grad_dtype


def set_grad_dtype(self: Tensor, dtype: DType | None) -> None:
    """Have gradients of a leaf in another dtype than it has itself."""
    if self._grad_fn is not None:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    if dtype is not None and not isinstance(dtype, DType):
        raise TypeError(f"grad_dtype must be a torch.dtype or None, got {type(dtype).__name__}")
    grad, node = self._grad, None if self._accumulator is None else self._accumulator()
    if dtype is not None and grad is not None and grad.dtype is not dtype:
        raise RuntimeError(
            f"Cannot set grad_dtype to {dtype} because there is already a gradient with dtype {grad.dtype}. Please clear "
            "the gradient (.grad = None) before changing grad_dtype."
        )
    if node is not None and node.bucket is not None:
        raise RuntimeError(
            "Cannot set grad_dtype: the gradient lies in a bucket of DistributedDataParallel, in the dtype of the parameter"
        )
    self._grad_dtype = dtype
    if node is not None:
        node.fit(self._array)


def _check_addable(array: Any, grad: Any) -> None:
    """Refuse to add `grad` to a leaf's gradient, where that is not of its shape or stands for itself several times."""
    if array.shape != grad.shape:
        raise GraphError(
            f"the .grad of a leaf has shape {list(array.shape)}, and the gradient that is to be added to it "
            f"{list(grad.shape)}: set .grad to None after .data was replaced"
        )
    if isinstance(array, SparseArray):
        return
    if array.size and any(step == 0 and n > 1 for step, n in zip(array.strides, array.shape, strict=True)):
        raise GraphError(
            "unsupported operation: more than one element of the .grad of a leaf (shape "
            f"{list(array.shape)}) refers to a single memory location. Please clone() it before it is assigned."
        )


accumulators: dict[type, type[AccumulateGrad]] = {}
"""By the class of a leaf, that of its node, where it is another."""


def accumulator(tensor: Tensor) -> AccumulateGrad:
    """The node where the gradient of a leaf ends; one object as long as anything refers to it."""
    node = None if tensor._accumulator is None else tensor._accumulator()
    return accumulators.get(tensor.__class__, AccumulateGrad)(tensor) if node is None else node


def edge_of(tensor: Tensor) -> Edge:
    """Where the gradient of `tensor` goes."""
    if not tensor._requires_grad:
        return NO_EDGE
    view = tensor._view
    if view is not None:
        origin = view.base._grad_fn
        # A base that was detached since (origin None) leaves its views the history that they have.
        if origin is not view.root and (origin is not None or view.root.__class__ is int):
            refresh_view(tensor)
    node = tensor._grad_fn
    if node is not None:
        return node, tensor._output_nr
    weak = tensor._accumulator
    leaf = None if weak is None else weak()
    return (accumulator(tensor) if leaf is None else leaf), 0


def refresh_view(tensor: Tensor) -> None:
    """Make the history of a view again after its base was changed in place through another name."""
    view = tensor._view
    assert view is not None
    if isinstance(view.root, int) and tensor._versions[0] == (
        view.root if view.root >= 0 else -1 - view.root
    ):
        return  # it never had a history, and nothing was written since
    if is_fixed(view):
        raise GraphError(why_fixed(tensor, view, "its base or another view of its base has been"))
    assert view.steps is not None
    base, steps = view.base, view.steps
    previous, mode.enabled = mode.enabled, True
    try:
        if base._reshaped and base._array.dtype == tensor._array.dtype:
            # The steps were for another shape; where the view lies in memory has not changed.
            again = base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            assert again._view is not None
            steps = again._view.steps
        else:
            again = base
            for op, args in steps:
                again = op(again, *args)
    finally:
        mode.enabled = previous
    if again._array.shape != tensor._array.shape or again.data_ptr() != tensor.data_ptr():
        raise GraphError(
            f"a view of shape {list(tensor.shape)} is used after its base was written to and given another shape or "
            "memory in place: how to make it again is not known. Make the view after that."
        )
    tensor._view = view._replace(steps=steps, root=base._grad_fn)
    node, nr = edge_of(again)
    assert node is not None
    set_history(tensor, node, nr)


def is_fixed(view: View) -> bool:
    """Whether the history of `view` can not follow writes to its memory."""
    return view.maker is not None or view.root.__class__ is int


def why_fixed(tensor: Tensor, view: View, what: str) -> str:
    """The text of the error when `view` of `tensor` is fixed, and `what` (being) modified in place under autograd."""
    node = tensor._grad_fn
    switched = isinstance(view.root, int) or node is None
    normal = isinstance(view.root, int) and view.root < 0
    where = "inference mode" if normal else "no_grad mode"
    after = "in normal mode" if normal else "with grad mode enabled"
    if switched and (view.maker is None or node is None):
        origin = (
            "A view was"
            if node is None
            else f"Output {tensor._output_nr} of {node.name()} is a view of a view which was"
        )
        text = f"{origin} created in {where} and {what} modified inplace {after}."
    else:
        assert node is not None
        text = f"Output {tensor._output_nr} of {node.name()} is a view and {what} modified inplace."
    if view.maker == "several":
        return (
            f"{text} This view is the output of a function that returns multiple views. Such functions do not allow the "
            "output views to be modified inplace. You should replace the inplace operation by an out-of-place one."
        )
    if view.maker is not None:
        return (
            f"{text} This view was created inside a custom Function (or because an input was returned as-is), whose "
            "backward would be skipped. Return a clone() from its forward()."
        )
    block = "inference_mode" if normal else "no_grad"
    return (
        f"{text} Move both the view and the operation either inside the {block} block (if the operation is not to be "
        "recorded) or outside of it."
    )


def tensor_at(array: Any, edge: Edge) -> Tensor:
    """A kept array as a tensor again, joined to the graph where `edge` says."""
    node, nr = edge
    while node is not None and node.sums:
        node, nr = node.edges[0]  # the array is what it was outside
    if node is None:
        return wrap(array)
    if isinstance(node, AccumulateGrad) and node.variable._array is array:
        return node.variable
    t = wrap(array)
    t._requires_grad = True
    if isinstance(node, AccumulateGrad):
        # A cast or moved copy of a leaf: its gradient goes where the leaf's goes.
        t._accumulator = node.variable._accumulator
        t._accumulator_kept = node
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
