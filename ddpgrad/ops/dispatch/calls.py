"""The general call of an op: takes arrays out of Tensors, runs the kernel, wraps the result and records its node.

This is the form that fits every op; `lean_calls.py` has leaner ones for the usual declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.grad_mode import mode
from ...backend.dtype import bfloat16, float16
from ...backend.registry import backend_for
from ...core import return_types
from ...core.modes import mapping, recorders
from ...core.overrides import answer, ask, is_overridden, leaving_unknown, overriding
from ...core.tensor import Tensor, wrap
from .autocast import cast_arguments, casting, is_listed, without_autocast
from .dtype_lists import REFUSED_BY_OPS, refuse_dtypes
from .explain import explain, said
from .half import of_numbers
from .node import record
from .out import compute_as_out, write_out
from .promotion import promotion_of
from .views import counts, mark_view

if TYPE_CHECKING:
    from .declare import Op


def is_differentiable(op: Op) -> bool:
    """Whether results of `op` have a history."""
    return bool(op.rules) or op.joint is not None


def casts_of(op: Op) -> Sequence[Any]:
    """Something that is true while some thread is within autocast and autocast has a say in `op`."""
    return casting if is_listed(op.name) else ()


Asked = Callable[[], Any] | None


def general(op: Op, asked: Asked = None, operator: bool = False) -> Callable[..., Any]:
    """The public function of any op.

    asked: returns what operands are asked about, where it is not the op's function. operator: it is a method that Python
    calls for an operator, which leaves operands of unknown classes to these.
    """
    kernels, tails = op.kernels, op.tails
    complete = len(op.params) if op.varargs is None else -1
    tensors, adapt, check, sequence, watch = op.tensors, op.adapt, op.check, op.sequence, op.watched
    numbers, promote = op.numbers, promotion_of(op)
    promotes, plain = op.promotion is not None, not (op.has_body or op.sequence)
    first_place = tensors[0] if tensors else 0
    multiple = op.outputs > 1 or bool(op.extras)
    visible = op.outputs
    together = (
        getattr(return_types, op.name)._make if visible > 1 and hasattr(return_types, op.name) else tuple
    )
    # Places of outputs without a gradient that are kept, and that users may change.
    guarded = [i for i, name in enumerate(op.extras[: visible - 1], 1) if name in op.keep]
    differentiable, casts = is_differentiable(op), casts_of(op)
    is_view, reflected_name, refused = op.view, op.reflected_name, REFUSED_BY_OPS.get(op.name)
    leaving = leaving_unknown if operator else _itself

    def call(*args: Any, **kwargs: Any) -> Any:
        if overriding and is_overridden(args, kwargs):
            return leaving(ask)(asked() if asked else op.call, args, kwargs)
        if operator and args[1] is None:
            return NotImplemented
        as_given = args
        try:
            if kwargs:
                if "out" in kwargs:
                    return with_out(op, call, args, kwargs)
                args = op.bind(args, dict(kwargs))
            elif len(args) != complete:
                tail = tails.get(len(args))
                args = op.bind(args, kwargs) if tail is None else args + tail
            if casts:
                args = cast_arguments(op.name, args)
            received = args
            if refused is not None and _kind_of(args[first_place]) != "f":
                refuse_dtypes(said(op), refused, [args[i] for i in tensors])
            try:
                if check is not None:
                    check(*args)
                if adapt is not None:
                    args = adapt(*args)
            except AttributeError as error:
                raise explain(op, received, error) from error
            given = tuple(args[0]) if sequence else tuple([args[i] for i in tensors])
            raw = list(args)
            dtype = None
            if promotes:
                dtype = promote(given, raw)
            elif sequence:
                raw[0] = [_array(op, t) for t in given]
            else:
                for i in tensors:
                    value = raw[i]
                    if isinstance(value, Tensor):
                        raw[i] = value._array
                    elif value is not None and not (
                        i in numbers and isinstance(value, (bool, int, float, complex))
                    ):
                        raw[i] = _array(op, value)
            first = raw[0][0] if sequence else raw[first_place]
            if not hasattr(first, "dtype"):
                first = _first_array(op, raw)
            if mapping and (found := mapping[0](raw)) is not None:
                first = found
            try:
                kernel = kernels[first.__class__]
                if plain and (dtype is bfloat16 or dtype is float16):
                    kernel = of_numbers(op, kernel, dtype)
                result = kernel(*raw)
            except Exception as error:
                raise explain(op, args, error) from error
            if multiple:
                result, *more = result
            else:
                more = []
            # A scalar of NumPy's becomes an array; what was moved to another device is one already.
            if result.__class__ is not first.__class__ and isinstance(result, np.generic):
                result = backend_for(first).asarray(result)
            if dtype is bfloat16 and result.dtype.kind == "f":
                # What has a body may take a bfloat16 array and a number to float32 or float64, as NumPy does.
                wide, result = result, backend_for(first).cast(result, dtype)
                if recorders:
                    recorders[0].on_write(result, None, wide)
            out = wrap(result)
            outs = [out]
            if is_view:
                mark_view(given[0], out, (call, tuple(args[1:])))
            if visible > 1:
                asarray = backend_for(first).asarray
                outs += [wrap(asarray(m)) for m in more[: visible - 1]]
            if mode.enabled and differentiable and (not is_view or counts(out)):
                for t in given:
                    if isinstance(t, Tensor) and t._requires_grad:
                        watched = versions_of([received[i] for i in watch])
                        if op.differentiable > 1:
                            record(op, given, tuple(raw), out, more, outs[: op.differentiable], watched)
                        else:
                            watched += [outs[i]._versions for i in guarded]
                            node = record(op, given, tuple(raw), out, more, None, watched)
                            if reflected_name is not None and not isinstance(given[0], Tensor):
                                node._name = reflected_name
                        break
            return out if visible == 1 else together(outs)
        except (TypeError, AttributeError, RuntimeError, NotImplementedError) as error:
            return leaving(answer)(asked() if asked else op.call, as_given, kwargs, error)

    return call


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _kind_of(value: Any) -> str:
    """NumPy's letter for the kind of elements that a Tensor has; none for anything else."""
    return value._array.dtype.kind if isinstance(value, Tensor) else ""


def with_out(
    op: Op, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Tensor | tuple[Tensor, ...]:
    """What `call` computes without `out`, written into the `out` among `kwargs`."""
    options = dict(kwargs)
    target = options.pop("out")
    compute_as_out(op, args, options, target)
    result = without_autocast(call, args, options)
    return into(op, target, result, (*args, *options.values()))


def into(op: Op, out: Any, result: Any, given: Sequence[Any]) -> Any:
    """`result`, or `out` with it when the caller gave one. given: the arguments of the op."""
    return result if out is None else write_out(op.name, out, result, given, op)


def versions_of(arguments: Sequence[Any]) -> list[list[int]]:
    """The version counters of the tensors among `arguments`, or within tuples and lists there."""
    found: list[list[int]] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            found.append(argument._versions)
        elif isinstance(argument, (tuple, list)):
            found += [part._versions for part in argument if isinstance(part, Tensor)]
    return found


def _first_array(op: Op, raw: Sequence[Any]) -> Any:
    for i in op.tensors:
        if hasattr(raw[i], "dtype"):
            return raw[i]
    got = ", ".join(type(raw[i]).__name__ for i in op.tensors)
    raise TypeError(f"{said(op)}(): at least one argument must be a Tensor, got {got}")


def _array(op: Op, value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._array
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy scalar counts as a number
        return value.item()
    raise TypeError(f"{said(op)}(): expected a Tensor, got {type(value).__name__}")
