"""One of PyTorch's ops, told below autograd: who is told answers without recording, and the result gets a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...autograd.grad_mode import mode
from ...autograd.nodes import Node
from ...autograd.saved import current_hooks
from ...core.dispatching import (
    DisableTorchDispatch,
    dispatch,
    flat,
    is_told,
    own_attributes,
    telling,
    tells,
    thread,
)
from ...core.tables import decorator_for
from ...core.tensor import Tensor
from ...ops.dispatch.declare import Op
from ...ops.dispatch.node import record
from ...ops.dispatch.vocabulary import VOCABULARY
from . import OpOverload, overload
from .names import FIRST, Call
from .nodes import RerunNode, ToldNode


class Running:
    """The op that autograd records around what is told of it.

    Where the handler calls the op with the arguments that it was told, it is computed as ever, with its history, which
    the handler does not see.
    """

    def __init__(
        self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], compute: Callable[[], Any]
    ) -> None:
        self._func, self._compute = func, compute
        self._tensors = [v for v in flat((*args, *kwargs.values())) if isinstance(v, Tensor)]
        self.made: list[Tensor] = []
        self.histories: dict[int, tuple[Tensor, Any, int]] = {}

    def is_call(self, func: OpOverload, args: Sequence[Any]) -> bool:
        """Whether this is the call that was told."""
        if func is not self._func:
            return False
        given = [v for v in flat(args) if isinstance(v, Tensor)]
        return len(given) <= len(self._tensors) and all(
            a is b for a, b in zip(given, self._tensors, strict=False)
        )

    def compute(self) -> Any:
        """What the op gives, as it is below autograd."""
        before, mode.enabled, thread.running = mode.enabled, True, None
        try:
            result = self._compute()
        finally:
            mode.enabled, thread.running = before, self
        given = set(map(id, self._tensors))
        for t in flat((result,)):
            if not isinstance(t, Tensor):
                continue
            self.made.append(t)
            if t._requires_grad and id(t) not in given:
                self.histories[id(t)] = t, t._grad_fn, t._output_nr
                t._requires_grad, t._grad_fn, t._output_nr = False, None, 0
        return result

    def lend(self, outs: Sequence[Tensor]) -> bool:
        """Give `outs` the histories of what the op computes; False if that is of another kind."""
        with DisableTorchDispatch():
            results = flat((self.compute(),))
        computed = [t for t in results if isinstance(t, Tensor) and id(t) in self.histories]
        outs = outs[: len(computed)]  # what else there is has no history, as the statistics of a norm
        if [t.shape for t in computed] != [t.shape for t in outs]:
            return False
        for t, other in zip(outs, computed, strict=True):
            _, t._grad_fn, t._output_nr = self.histories[id(other)]
            t._requires_grad = True
        return True

    def restore(self, outs: Sequence[Tensor]) -> bool:
        """Give `outs` their histories; False if the op has not computed them."""
        made = set(map(id, self.made))
        if not self.made or not all(id(t) in made for t in outs):
            return False
        for t in outs:
            if id(t) in self.histories:
                _, t._grad_fn, t._output_nr = self.histories[id(t)]
                t._requires_grad = True
        return True


_RESULTS = (Tensor, tuple, list, bool, int, float, complex, type(None))


def below(
    call: Call,
    compute: Callable[[], Any],
    op: Op | None = None,
    values: Sequence[Any] = (),
    recorded: bool = True,
) -> Any:
    """The result of a call as the modes and classes that are told of it say, with its history.

    compute: runs the op, recorded. op, values: that it is, and its arguments. recorded: False for what has no history.
    """
    if not is_told(call.args, call.kwargs):
        return compute()  # what makes a tensor of numbers, told to classes only
    func = overload(call.name, call.overload)
    if call.name in FIRST:
        compute = partial(func.implementation, *call.args, **call.kwargs)
    tensors = [v for v in flat((*call.args, *call.kwargs.values())) if isinstance(v, Tensor)]
    before, around = mode.enabled, thread.running
    recording = recorded and before and any(t._requires_grad for t in tensors)
    running = Running(func, call.args, call.kwargs, compute) if recording else None
    mode.enabled, thread.running = False, running
    try:
        result = dispatch(func, call.args, call.kwargs)
    finally:
        mode.enabled, thread.running = before, around
    if not isinstance(result, _RESULTS):
        raise RuntimeError(
            f"Unable to cast {result!r}, which __torch_dispatch__ returned for {func}, to Tensor"
        )
    if running is None:
        return result
    outs = [t for t in flat((result,)) if isinstance(t, Tensor)]
    if not running.restore(outs):
        changed = func._schema.is_mutable and any(t is i for t in outs for i in tensors)
        if changed and not running.made:
            raise NotImplementedError(
                f"{func}: a {type(outs[0]).__name__} was changed in place, and the gradient is not known: do it under "
                "torch.no_grad(), or out of place"
            )
        outs = [
            t
            for t in outs
            if t.dtype.category > 1 and t._grad_fn is None and all(t is not i for i in tensors)
        ]
        if outs and (op is None or not by_rules(op, values, result)):
            if current_hooks() is not None and running.lend(outs):
                return result  # what saves tensors for a checkpoint saves those that the op would
            RerunNode(call.name, backward_told(call), call.args, call.kwargs).join(outs)
    return result


def backward_told(call: Call) -> Callable[..., Any]:
    """What gives the gradients of a call, as those who are told make of it."""

    def gradients(grads: Sequence[Any], needs: Sequence[bool], args: Any, kwargs: Any) -> Any:
        func = overload(f"{call.name}_backward", call.overload)
        first = grads[0] if len(grads) == 1 else list(grads)
        given = {**kwargs, "output_mask": list(needs)}
        if telling and is_told((first, *args), given):
            return below(
                Call(func._opname, (first, *args), given, call.overload), lambda: func(first, *args, **given)
            )
        return func(first, *args, **given)

    return gradients


def by_rules(op: Op, values: Sequence[Any], result: Any) -> bool:
    """Join the result to the graph by a node of `op`, if its rules need nothing that only its kernel knows."""
    more = result[1:] if isinstance(result, (tuple, list)) else ()
    unknown = set(op.keep) & set(op.extras[len(more) :])
    if unknown or op.differentiable > 1 or (more and op.outputs != len(more) + 1) or op.sequence:
        return False
    out = result[0] if isinstance(result, (tuple, list)) else result
    others = [v for i, v in enumerate(values) if i not in op.tensors]
    if any(map(tells, flat(others))):
        return False  # indices whose elements are not here
    try:
        with DisableTorchDispatch():  # it looks at shapes
            raw = tuple(values) if op.adapt is None else op.adapt(*values)
    except (AttributeError, TypeError, NotImplementedError):
        return False  # it looks at elements, which only the parts have
    given = tuple(raw[i] for i in op.tensors)
    if not any(map(tells, flat((given, result)))):
        arrays = tuple(v._array if isinstance(v, Tensor) else v for v in raw)
        record(op, given, arrays, out, [t._array for t in more])
        return True
    node: Any = record(op, given, raw, out, more)
    node.__class__ = ToldNode
    Node.any_tells = True
    if "out" in op.keep and node._kept is not None:
        place = op.keep.index("out")
        if node._kept[place] is not None:
            kept = list(node._kept)
            kept[place] = bare(out)
            node._kept = tuple(kept)
    return True


def bare(tensor: Tensor) -> Tensor:
    """Another object that is the same tensor without its history."""
    kind: Any = type(tensor)
    copy = object.__new__(kind)
    for slot in ("_array", "_versions"):
        setattr(copy, slot, getattr(tensor, slot))
    copy._requires_grad, copy._grad_fn, copy._output_nr, copy._view = False, None, 0, None
    for name, value in own_attributes(tensor).items():
        setattr(copy, name, value)
    return copy


# -- what PyTorch takes apart ---------------------------------------------------------------------

PARTS: dict[str, Callable[..., Any]] = {}
"""What PyTorch takes apart, by the name of a function (`parts.py`). NotImplemented where it is to run as ever."""

OF_OPS: dict[str, Callable[..., Any]] = {}
"""The same by the name of an op, for its arguments, of which none is left out."""


parts_of_op = decorator_for(OF_OPS)
"""Declares the parts of these ops."""

parts_of = decorator_for(PARTS)
"""Declares the parts of these functions."""


def told(name: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, of: str = "default") -> Any:
    """Tell of one op, and compute it by what `aten` has."""
    call = Call(name, args, kwargs or {}, of)
    return below(call, lambda: overload(name, of).implementation(*args, **(kwargs or {})))


def op_of(name: str) -> Any:
    """The op of that name."""
    return getattr(VOCABULARY, name).__dict__["op"]
