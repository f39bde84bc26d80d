"""In-place ops: write into a tensor's memory, count the version, and keep the graph right.

Writing through a view changes its base. The base then gets a new history: its old value with
the view's region replaced by the view's new value. Other views of it find out by the `root`
that they remember (see `tensor.View`) and make their history again when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.accumulate import edge_of, refresh_view
from ..autograd.grad_mode import mode
from ..autograd.graph import NO_EDGE, Node
from ..backend.registry import backend_for
from ..tensor import Tensor, View, wrap
from .declare import OPS, Op
from .explain import explain
from .index import index_put
from .node import OpNode, record


def check_writable(name: str, tensor: Tensor) -> None:
    """Refuse to write into a leaf that requires grad, or a view of one, while recording."""
    if not mode.enabled or not tensor._requires_grad:
        return
    if tensor._grad_fn is None:
        raise RuntimeError(
            f"{name}(): a leaf Variable that requires grad is being used in an in-place operation. Do it under "
            "torch.no_grad(), or out of place."
        )
    base = None if tensor._view is None else tensor._view.base
    if base is not None and base._grad_fn is None and base._requires_grad:
        raise RuntimeError(
            f"{name}(): a view of a leaf Variable that requires grad is being used in an in-place operation. Do it "
            "under torch.no_grad(), or out of place."
        )


def inplace(op: Op) -> Callable[..., Tensor]:
    """The in-place form of an op: `x.mul_(y)` for `mul`."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(f"{op.name}_", self)
        others = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        recording = mode.enabled and (self._requires_grad or any(t._requires_grad for t in others))
        if self._array.dtype.kind in "biu" and any(t._array.dtype.kind in "fc" for t in others):
            raise RuntimeError(
                f"{op.name}_(): result type {others[0].dtype.name} can't be cast to the desired output type "
                f"{self.dtype.name}"
            )
        if recording:
            # Rules may need the old value, which is about to be overwritten.
            old = wrap(backend_for(self._array).clone(self._array)) if "input" in op.keep else self.detach()
            _take_history(old, self)
            result = op.call(old, *args, **kwargs)
        else:
            previous, mode.enabled = mode.enabled, False
            try:
                result = op.call(self.detach(), *args, **kwargs)
            finally:
                mode.enabled = previous
        if result._array.shape != self._array.shape:
            raise RuntimeError(
                f"{op.name}_(): output with shape {list(self.shape)} doesn't match the broadcast shape "
                f"{list(result.shape)}"
            )
        self._array[...] = result._array
        self._versions[0] += 1
        if recording:
            _give_history(self, result)
        return self

    method.__name__ = method.__qualname__ = f"{op.name}_"
    method.__doc__ = f"In-place form of `{op.name}`."
    return method


def _take_history(copy: Tensor, of: Tensor) -> None:
    if of._view is not None and of._requires_grad and of._view.root is not of._view.base._grad_fn:
        refresh_view(of)
    copy._grad_fn, copy._output_nr, copy._requires_grad = of._grad_fn, of._output_nr, of._requires_grad


def _give_history(target: Tensor, result: Tensor) -> None:
    """`target` now holds what `result` computed; the node must see `target`'s version from here on."""
    node = result._grad_fn
    if isinstance(node, OpNode) and node.op.keeps_out and node._counters:
        # The output that the node kept is `target`'s memory now: keep that, not the temporary.
        kept = list(node._kept)
        kept[node.op.keep.index("out")] = target._array
        node._kept = tuple(kept)
        node._counters = [*node._counters[:-1], target._versions]
        node._versions = [*node._versions[:-1], target._versions[0]]
    if target._view is None:
        target._grad_fn, target._output_nr, target._requires_grad = node, result._output_nr, True
        return
    rebase(target, result)


class ViewWrite(Node):
    """The history of a base after a write through a view: old value and written value."""

    __slots__ = ("_steps",)

    def __init__(self, base: Tensor, view: View, written: Tensor) -> None:
        edges = (edge_of(base), edge_of(written) if written._requires_grad else NO_EDGE)
        super().__init__(edges, base._array.shape, base._array.dtype)
        self._steps = view.steps

    def name(self) -> str:
        return "CopySlices"

    def apply(self, grad: Any, F: Any) -> tuple[Any, Any]:
        tensor_mode = isinstance(grad, Tensor)
        g = grad if tensor_mode else wrap(grad)
        region = _region(g, self._steps)
        rest = None
        if self.next_functions[0][0] is not None:
            rest = g * _outside(g, self._steps)
        if tensor_mode:
            return rest, region
        return (None if rest is None else rest._array), region._array


def _region(tensor: Tensor, steps: Any) -> Tensor:
    for call, args in steps:
        tensor = call(tensor, *args)
    return tensor


def _outside(like: Tensor, steps: Any) -> Tensor:
    """1 outside the view's region, 0 inside, in the dtype of `like`."""
    mask = wrap(backend_for(like._array).full_like(like._array, 1))
    _region(mask, steps)._array[...] = 0
    return mask


def rebase(view: Tensor, written: Tensor) -> None:
    """Make the base of `view` depend on what was written through it."""
    info = view._view
    assert info is not None
    base = info.base
    node = ViewWrite(base, info, written)
    base._grad_fn, base._output_nr, base._requires_grad = node, 0, True
    refresh_view(view)


# -- the in-place ops that are not forms of an op --------------------------------------------


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`, under autograd."""
    check_writable("index_put", self)
    if not isinstance(value, Tensor) and not isinstance(value, (bool, int, float, complex)):
        value = wrap(backend_for(self._array).asarray(np.asarray(value), dtype=self.dtype))
    recording = mode.enabled and (self._requires_grad or (isinstance(value, Tensor) and value._requires_grad))
    op: Op = index_put.op  # type: ignore[attr-defined]
    _, raw, value = op.adapt(self, index, value)  # type: ignore[misc]
    array = value._array if isinstance(value, Tensor) else value
    if recording:
        before = self.detach()
        _take_history(before, self)
        if isinstance(value, Tensor) and value._array.dtype != self._array.dtype:
            value = OPS["cast"].call(value, self.dtype)
            array = value._array
    try:
        self._array[raw] = array
    except Exception as error:
        raise explain(op, (self, value), error) from error
    self._versions[0] += 1
    if recording:
        out = wrap(self._array)
        out._versions = self._versions
        record(op, (before, value if isinstance(value, Tensor) else None), (before._array, raw, array), out)
        _give_history(self, out)


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite with `src`, broadcast, converted and moved as needed."""
    if isinstance(src, Tensor) and src.device != self.device:
        src = src.to(self.device)
    setitem(self, Ellipsis, src)
    return self


def fill_(self: Tensor, value: Any) -> Tensor:
    """Overwrite with one value."""
    setitem(self, Ellipsis, value)
    return self


def zero_(self: Tensor) -> Tensor:
    """Overwrite with zeros."""
    setitem(self, Ellipsis, 0)
    return self


def detach_(self: Tensor) -> Tensor:
    """Forget the history; the tensor becomes a leaf."""
    if self._view is not None and self._requires_grad:
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    self._grad_fn, self._output_nr, self._requires_grad = None, 0, False
    return self
