"""In-place writes to views: refused cases, and the common history of a base and its views.

Writing through a view changes its base. The base then gets a new history: its old value with
the view's region replaced by what was written. Views that had a history find out by the `root`
that they remember (`_tensor.View`) and make theirs again when it is needed; views made while the
base had none are listed in `base._plain_views` and get theirs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from ..backend.elementary.shape import inverse, memory_order
from ..backend.registry import backend_for
from ..core.modes import InferenceVersions, check_examples_writable, inference, mapping
from ..core.tensor import Tensor, wrap
from ..core.view import View
from .accumulate import edge_of, is_fixed, refresh_view, set_history, why_fixed
from .grad_mode import mode
from .nodes import NO_EDGE, Edge, Node


def remember_plain_view(base: Tensor, *made: Tensor) -> None:
    """List views of a base without history, in case the base gets one (see `history_changed`)."""
    views = base._plain_views
    if views is None:
        base._plain_views = list(map(ref, made))
        return
    before = len(views)
    views += map(ref, made)
    if len(views) >= 16 and before.bit_length() < len(views).bit_length():
        # Forget dead views at lengths 16, 32, …: constant cost per view on average.
        views[:] = [r for r in views if r() is not None]


def history_changed(base: Tensor) -> None:
    """Give the views that were made before `base` had a history their part of it."""
    views, base._plain_views = base._plain_views, None
    for weak in views or ():
        view = weak()
        if view is not None and view._view is not None and view._grad_fn is None:
            view._requires_grad = True
            if not is_fixed(view._view):  # such a one says so when it is used
                refresh_view(view)


def check_writable(name: str, tensor: Tensor, index: Any = Ellipsis, needs_grad: bool = False) -> None:
    """Refuse in-place operation `name` on what it would silently get wrong.

    index: the part it writes to; None for an operation that gives all elements one value. needs_grad: whether something
    that requires a gradient is written.
    """
    array = tensor._array
    if mapping:
        check_examples_writable(array)
    if 0 in array.strides and index is not None:
        part = array if index is Ellipsis else array[index]
        if part.size and any(s == 0 and n > 1 for s, n in zip(part.strides, part.shape, strict=True)):
            raise RuntimeError(
                f"{name}(): unsupported operation: more than one element of the written-to tensor (shape "
                f"{list(part.shape)}) refers to a single memory location. Please clone() the tensor before performing "
                "the operation."
            )
    if isinstance(tensor._versions, InferenceVersions) and not inference.on:
        raise RuntimeError(
            f"{name}(): Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone "
            "to get a normal tensor before doing inplace update."
        )
    if not mode.enabled:
        return
    view = tensor._view
    if view is not None:
        # What has become a leaf by requires_grad_() may be a view itself, of a base that needs none.
        of_leaf = view.base._grad_fn is None and (view.base._requires_grad or tensor._requires_grad)
        if (tensor._requires_grad or needs_grad) and is_fixed(view):
            raise RuntimeError(f"{name}(): {why_fixed(tensor, view, 'is being')}")
        if of_leaf:
            raise RuntimeError(
                f"{name}(): a view of a leaf Variable that requires grad is being used in an in-place operation. Do it "
                "under torch.no_grad(), or out of place."
            )
    if tensor._requires_grad and tensor._grad_fn is None:
        raise RuntimeError(
            f"{name}(): a leaf Variable that requires grad is being used in an in-place operation. Do it under "
            "torch.no_grad(), or out of place."
        )


def written(target: Tensor, node: Node, output_nr: int = 0) -> None:
    """Record that `target` now holds output `output_nr` of `node`, which was written into its memory."""
    if target._view is None:
        set_history(target, node, output_nr)
        history_changed(target)
        return
    view = target._view
    base = view.base
    set_history(base, CopySlices(base, view, (node, output_nr)))
    target._requires_grad = True
    refresh_view(target)
    history_changed(base)


class CopySlices(Node):
    """The history of a base after a write through a view: old value and written value."""

    __slots__ = ("_order", "_steps")

    def __init__(self, base: Tensor, view: View, source: tuple[Node, int]) -> None:
        edges = (edge_of(base) if base._requires_grad else NO_EDGE, source)
        super().__init__(edges, base._array.shape, base._array.dtype)
        self._steps = view.steps or ()
        # The steps are for the base as it lies in memory: its dimensions, outermost first, if that is not their order.
        self._order = None if base._array.flags.c_contiguous else memory_order(base._array)

    def name(self) -> str:
        return "torch::autograd::CopySlices"

    def apply(self, grad: Any, F: Any) -> tuple[Any, Any]:
        kept = self.edges[0][0] is not None
        if isinstance(grad, Tensor):
            region = _region(self._laid_out(F, grad), self._steps)
            return (F.where(self._outside(grad), grad, F.full_like(grad, 0)) if kept else None), region
        return _cut(F, grad, self._order, self._steps, kept)

    def entry(self, grad: Any, F: Any, edges: Sequence[Edge]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _cut, (F, grad, self._order, self._steps, edges[0][0] is not None)

    def _laid_out(self, F: Any, grad: Tensor) -> Tensor:
        """`grad` with its elements in memory as those of the base lie."""
        if self._order is None:
            return F.to_contiguous(grad)
        return F.permute(F.to_contiguous(F.permute(grad, *self._order)), *inverse(self._order))

    def _outside(self, like: Tensor) -> Tensor:
        """True outside the view's region, False inside."""
        backend = backend_for(like._array)
        mask = wrap(
            _lying(lambda shape: backend.full(shape, True, bool, like._array), like._array.shape, self._order)
        )
        _region(mask, self._steps)._array[...] = False
        return mask


def _cut(F: Any, grad: Any, order: Sequence[int] | None, steps: Any, kept: bool) -> tuple[Any, Any]:
    """The gradients of what the base held before, which has none where the view lies, and of what was written there."""
    own = _lying(lambda shape: F.new_zeros(grad, shape), grad.shape, order)
    own[...] = grad
    part = _region(wrap(own), steps)._array
    region = F.clone(part)
    part[...] = 0
    return (own if kept else None), region


def _lying(make: Callable[[Sequence[int]], Any], shape: Sequence[int], order: Sequence[int] | None) -> Any:
    """An array of `shape` whose dimensions lie in memory in that order. make: makes contiguous ones."""
    if order is None:
        return make(shape)
    return make(tuple([shape[d] for d in order])).transpose(inverse(order))


def _region(tensor: Tensor, steps: Any) -> Tensor:
    for call, args in steps:
        tensor = call(tensor, *args)
    return tensor
