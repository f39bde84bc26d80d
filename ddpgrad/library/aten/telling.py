"""What is told to a `__torch_dispatch__`: calls of ops under PyTorch's names, below autograd.

A function that is asked (`core/overrides.py`) and has someone to tell comes here. It is one of PyTorch's ops, and told as
such; or PyTorch takes it apart (`parts.py`), and its parts come here in turn; or it runs, and the ops that it is made
of come here. Of an op the name and arguments are found (`names.py`), who is to be told is called without recording, and
what that returns gets the op's history: the very node of the op where the handler has called the op itself; else a
node that keeps Tensors (`nodes.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...autograd.grad_mode import mode
from ...autograd.views import check_writable
from ...core import dispatching, return_types
from ...core.dispatching import flat, passed, tells
from ...core.tensor import Tensor
from ...ops.creation import factories
from ...ops.dispatch.autocast import cast_arguments
from ...ops.dispatch.calls import casts_of, is_differentiable
from ...ops.dispatch.declare import OPS, Op
from ...ops.dispatch.inplace import give_history, take_history
from . import parts, parts_of_indexes  # noqa: F401 - which fill the tables
from .below import OF_OPS, PARTS, backward_told, bare, below, by_rules
from .leaves import IN_PLACE, LEAVES
from .names import FIRST, Call, call_of
from .nodes import RerunNode

_DATA = Tensor.__dict__["data"].fget
_INITIAL_VALUES = f"{__name__.partition('.')[0]}.nn.init"


# -- functions --------------------------------------------------------------------------------------


@dispatching.tell.register
def tell(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of `function(*args, **kwargs)`, of whose ops somebody is to be told."""
    known = getattr(function, "__self__", None)
    if isinstance(known, property):  # a property is read, or written to
        return PARTS["data"](*args) if known.fget is _DATA and len(args) < 3 else function(*args)
    attributes = getattr(function, "__dict__", {})
    op: Op | None = attributes.get("op")
    name = getattr(function, "__name__", "")
    given = dict(kwargs)
    if given.get("out") is not None:
        return _into(function, args, given)
    given.pop("out", None)
    if getattr(function, "__module__", "") == _INITIAL_VALUES:
        name = ""  # of methods that these call
    if name in PARTS:
        result = PARTS[name](*args, **given)
        if result is not NotImplemented:
            return result
    if name in LEAVES:
        call = LEAVES[name](_arguments(function, args, given))
        if call is not NotImplemented:
            result = below(call, lambda: passed(function, args, given))
            if given.get("requires_grad") and isinstance(result, Tensor):
                return result.requires_grad_()
            if isinstance(result, list):
                return tuple(result)
            if type(result) is tuple and hasattr(return_types, name):
                return getattr(return_types, name)._make(result)
            return result[0] if isinstance(result, tuple) and call.name in FIRST else result
    if op is not None and (function is op.call or op.public is op.call):
        return tell_op(op, args, given)
    if (
        name.endswith("_")
        and not name.endswith("__")
        and (name[:-1] in OPS or name in IN_PLACE or name[:-1] in LEAVES)
    ):
        return tell_in_place(function, name, args, given)
    return attributes.get("inside", function)(*args, **_renamed(function, given))


@dispatching.full_like.register
def _full_like(input: Tensor, value: Any) -> Tensor:
    like: Any = factories.ones_like(input) if value == 1 else factories.full_like(input, value)
    return like


def _renamed(function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """`kwargs` by the names of the parameters, for what takes others too."""
    others = function.__dict__.get("names", {})
    return {others.get(name, name): value for name, value in kwargs.items()}


def _arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    return inspect.signature(inspect.unwrap(function)).bind(*args, **_renamed(function, kwargs))


def tell_op(op: Op, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Tell of the op itself."""
    values = op.bind(tuple(args), kwargs)
    if casts_of(op):
        values = cast_arguments(op.name, values)
    if op.name in OF_OPS:
        result = OF_OPS[op.name](*values)
        if result is not NotImplemented:
            return result
    call = call_of(op, values)
    several = op.view == "several"
    result = below(
        call,
        lambda: passed(op.call, values, {}),
        None if several else op,
        values,
        several or is_differentiable(op),
    )
    if isinstance(result, (tuple, list)) and not several:
        return result[0] if op.outputs == 1 else tuple(result[: op.outputs])
    return tuple(result) if isinstance(result, list) else result


@dispatching.tell_part.register
def _tell_part(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return PARTS[name](*args, **kwargs)


@dispatching.tell_in_place.register
def tell_in_place(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Tell of what changes its first argument."""
    target = args[0]
    op = OPS.get(name[:-1])
    if name in IN_PLACE:
        call = IN_PLACE[name](*args, **kwargs)
    elif name[:-1] in LEAVES:
        call = LEAVES[name[:-1]](_arguments(function, args, kwargs))
    else:
        assert op is not None
        if "alpha" in kwargs:
            call = Call(name, tuple(args), dict(kwargs), "Tensor")
        else:
            call = call_of(op, op.bind(tuple(args), dict(kwargs)))
    scalar = call.overload.removeprefix("Tensor_") if name == "pow_" else call.overload
    call = Call(f"{call.name.rstrip('_')}_", call.args, call.kwargs, scalar)
    recording = mode.enabled and any(
        isinstance(v, Tensor) and v._requires_grad for v in flat((*args, *kwargs.values()))
    )
    if recording:
        check_writable(name, target, needs_grad=True)
        if name in _PLACES and any(map(tells, flat(args))):
            return _recorded_at_places(call, target)
        if op is not None and any(map(tells, flat(args))):
            return _recorded_in_place(call, op, target, args, kwargs)
    result = below(call, lambda: passed(function, args, kwargs))
    if tells(target):
        target._versions[0] += 1
    return target if result is None else result


_PLACES = frozenset(
    ("index_put_", "scatter_", "scatter_add_", "index_add_", "index_copy_", "index_fill_", "masked_scatter_")
)
"""What writes or adds at places, so that gradients do not depend on what was there."""


def _recorded_at_places(call: Call, target: Tensor) -> Tensor:
    """Tell of what changes places of a tensor of a class that is told; its history is that of a new tensor."""
    old = bare(target)
    take_history(old, target)
    out_of_place = call._replace(name=call.name[:-1], args=(old, *call.args[1:]))
    node = RerunNode(out_of_place.name, backward_told(out_of_place), out_of_place.args, out_of_place.kwargs)
    below(call, lambda: None, recorded=False)
    target._versions[0] += 1
    new = bare(target)
    node.join([new])
    give_history(target, new)
    return target


def _recorded_in_place(
    call: Call, op: Op, target: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> Tensor:
    """Tell of what changes a tensor of a class that is told; it gets the history of `op` of what it was before."""
    old = bare(target)
    take_history(old, target)
    values = op.bind((old, *args[1:]), dict(kwargs))
    below(call, lambda: None, recorded=False)
    target._versions[0] += 1
    new = bare(target)
    if not by_rules(op, values, new):
        raise NotImplementedError(
            f"aten.{call.name}: the derivative is not known; do it under torch.no_grad()"
        )
    give_history(target, new)
    return target


def _into(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Tell of what writes into `out`."""
    out = kwargs.pop("out")
    if not isinstance(out, Tensor):
        for target, result in zip(out, tell(function, args, kwargs), strict=True):
            target.resize_(result.shape).copy_(result)
        return out
    op: Op | None = function.__dict__.get("op")
    name = function.__name__
    if op is not None and op.name not in OF_OPS:
        call = call_of(op, op.bind(tuple(args), dict(kwargs)))
    elif name in LEAVES:
        call = LEAVES[name](_arguments(function, args, kwargs))
    else:
        call = Call(name, tuple(args), kwargs)
    given = {**call.kwargs, "out": out}
    overloaded = (
        "out" if call.overload in ("default", "Tensor") else f"{call.overload.removeprefix('dim_')}_out"
    )
    return below(
        Call(call.name, call.args, given, overloaded), lambda: passed(function, args, {**kwargs, "out": out})
    )
