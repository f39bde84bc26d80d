"""Views: results that share memory with their input, and ops that return several of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.grad_mode import mode
from ...autograd.views import remember_plain_view
from ...backend.registry import SparseArray
from ...core.modes import inference
from ...core.overrides import Overridden, answer, ask, is_overridden, overriding
from ...core.tensor import Tensor, wrap
from ...core.view import View
from .explain import explain
from .node import record

if TYPE_CHECKING:
    from .declare import Op


def memory_of(array: Any) -> Any:
    """An object that stands for the memory of a raw array: the same one for all arrays in that memory."""
    if isinstance(array, np.ndarray):
        base = array.base
        return base if isinstance(base, np.ndarray) else array
    if isinstance(array, SparseArray):
        return array
    return array.data.mem


def mark_view(
    input: Tensor, out: Tensor, step: tuple[Any, tuple[Any, ...]], maker: str | None = None
) -> None:
    """Let a result that shares memory with `input` share its version and know its base.

    step: (function, arguments after the input) that makes `out` from `input`. maker: as in `View`.
    """
    array, source = out._array, input._array
    owner = array.base
    if owner is not source:
        if array is source:
            out._array = source[...]
        elif (owner is None or owner is not source.base) and memory_of(array) is not memory_of(source):
            return  # a reshape that had to copy
    out._versions = versions = input._versions
    if versions.__class__ is not list:  # of inference mode: there is nothing to keep track of
        return
    recording = mode.enabled
    view = input._view
    root: Any
    if view is None:
        base, steps, root = input, (step,), input._grad_fn
    else:
        base, steps, root, first_maker = view
        if steps is not None:
            steps = (*steps, step)
        maker = maker or first_maker
        if root.__class__ is int:
            root = -1 - versions[0] if root < 0 else versions[0]
        else:
            root = base._grad_fn
    if not recording:
        root = -1 - versions[0] if inference.on else versions[0]
    out._view = _new_tuple(View, (base, steps, root, maker))
    if not base._requires_grad:
        remember_plain_view(base, out)
    elif not recording:
        out._requires_grad = input._requires_grad  # as in PyTorch, though it has no history


def mark_views(input: Tensor, outs: Sequence[Tensor]) -> None:
    """`mark_view` for the parts that one function makes together, which may not be written to under autograd."""
    first, *rest = outs
    mark_view(input, first, _NO_STEP, "several")
    versions, view = first._versions, first._view
    if view is not None:
        first._view = view = view._replace(steps=None)
    for out in rest:
        out._versions, out._view = versions, view
    if view is None:
        return
    if not view.base._requires_grad:
        remember_plain_view(view.base, *rest)
    elif first._requires_grad:
        for out in rest:
            out._requires_grad = True


_NO_STEP = (None, ())
_new_tuple = tuple.__new__  # what a NamedTuple's own __new__ calls, but faster


def counts(out: Tensor) -> bool:
    """False for a view of a tensor that was made in inference mode: it is one too, and without history."""
    return out._versions.__class__ is list


def owned(tensor: Tensor) -> Tensor:
    """`tensor`, a view of what nobody else has, as a tensor of its own."""
    tensor._view = None
    return tensor


def several_views(op: Op, asked: Callable[[], Any] | None = None) -> Callable[..., tuple[Tensor, ...]]:
    """The public function of an op whose kernel returns a list of views: one node with that many outputs."""
    kernels, adapt = op.kernels, op.adapt
    assert adapt is not None

    complete, tails = len(op.params), op.tails

    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        as_given = args
        if kwargs or len(args) != complete:
            tail = None if kwargs else tails.get(len(args))
            args = op.bind(args, dict(kwargs)) if tail is None else args + tail
        input = args[0]
        try:
            array = input._operand
        except (AttributeError, Overridden):
            if overriding and is_overridden(as_given, kwargs):
                return ask(asked() if asked else op.call, as_given, kwargs)
            wrong = TypeError(f"{op.name}(): expected a Tensor, got {type(input).__name__}")
            return answer(asked() if asked else op.call, as_given, kwargs, wrong)
        adapted = adapt(*args)
        raw = (array, *adapted[1:])
        try:
            parts = kernels[raw[0].__class__](*raw)
        except Exception as error:
            raise explain(op, adapted, error) from error
        outs = tuple([wrap(part) for part in parts])
        if outs:
            mark_views(input, outs)
        if outs and input._requires_grad and mode.enabled and counts(outs[0]):
            record(op, (input,), raw, outs[0], (), outs if len(outs) > 1 else None)
        return outs

    return call
