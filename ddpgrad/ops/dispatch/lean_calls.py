"""Specialised forms of `calls.general` for the most frequent declarations: fewer checks, the same results.

They leave to the general form the arguments that are not usual. `tests/ops/test_lean_forms.py` runs both on the
same cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.grad_mode import mode
from ...backend.registry import backend_for
from ...core.modes import mapping
from ...core.overrides import Overridden, ask, is_overridden, overriding
from ...core.tensor import wrap
from .autocast import cast_arguments, without_autocast
from .calls import Asked, casts_of, general, into, is_differentiable, versions_of, with_out
from .dtype_lists import REFUSED_BY_OPS, refuse_dtypes
from .explain import explain
from .lean_nodes import record_pair, record_single
from .node import record
from .views import counts, mark_view, several_views

if TYPE_CHECKING:
    from .declare import Op


_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)  # the usual ones, known by identity
_TOP = 1 << 63


def make_call(op: Op, asked: Asked = None, operator: bool = False) -> Callable[..., Any]:
    """The public function of `op`, in the leanest form that fits its declaration. The rest: as in `calls.general`."""
    if op.view == "several":
        return several_views(op, asked)
    plain = op.outputs == 1 and not op.extras and op.varargs is None and not op.sequence
    if plain and not op.view and op.adapt is None and len(op.params) == len(op.tensors):
        # Their arguments may be given by name, and these forms know the usual names only.
        if op.params == ("input",):
            return unary(op, asked)
        if op.params == ("input", "other"):
            return binary(op, asked, operator)
    only_tensors = plain and not op.view and op.promotion is None and len(op.params) == len(op.tensors)
    if only_tensors and len(op.params) == 3 and op.adapt is not None:
        return ternary(op, op.adapt, asked)
    if op.outputs == 1 and not op.extras and not op.sequence and op.tensors == (0,) and op.promotion is None:
        return single(op, asked)
    return general(op, asked)


def unary(op: Op, asked: Asked = None) -> Callable[..., Any]:
    """Lean form of `calls.general` for an op of one tensor and nothing else."""
    kernels = op.kernels
    call_general = general(op, asked)
    needs_float = op.promotion == "float" or op.check is not None or op.name in REFUSED_BY_OPS
    differentiable = is_differentiable(op)
    casts = casts_of(op)

    def call(input: Any, *, out: Any = None) -> Any:
        if out is not None:
            if overriding:
                return call_general(input, out=out)
            return into(op, out, without_autocast(call, (input,), {}), (input,))
        if casts:
            (input,) = cast_arguments(op.name, (input,))
        try:
            a = input._operand
        except (AttributeError, Overridden):
            return call_general(input)
        if needs_float and a.dtype is not _FLOAT32 and a.dtype.kind != "f":
            return call_general(input)
        try:
            result = kernels[a.__class__](a)
        except Exception as error:
            raise explain(op, (input,), error) from error
        if result.__class__ is not a.__class__:
            result = backend_for(a).asarray(result)
        made = wrap(result)
        if input._requires_grad and mode.enabled and differentiable:
            record_single(op, input, (a,), made)
        return made

    return call


def binary(op: Op, asked: Asked = None, operator: bool = False) -> Callable[..., Any]:
    """Lean form of `calls.general` for an op of two tensors or numbers and nothing else."""
    kernels = op.kernels
    call_general = general(op, asked, operator)
    needs_float = op.promotion in ("float", "ordered") or op.name in REFUSED_BY_OPS
    first_number, takes_numbers = (op.promotion is not None and i in op.numbers for i in (0, 1))
    differentiable = is_differentiable(op)
    check, casts, reflected_name = op.check, casts_of(op), op.reflected_name
    whole = check is None and not needs_float

    def number_first(input: Any, other: Any) -> Any:
        """Lean form of `calls.general` for `1 - x` with floating-point `x`."""
        try:
            b = other._operand
        except Overridden:
            return call_general(input, other)
        try:
            result = kernels[b.__class__](input, b)
        except Exception as error:
            if check is not None:
                check(input, other)
            raise explain(op, (input, other), error) from error
        made = wrap(result if result.__class__ is b.__class__ else backend_for(b).asarray(result))
        if other._requires_grad and mode.enabled and differentiable:
            node = record(op, (input, other), (input, b), made)
            if reflected_name is not None:
                node._name = reflected_name
        return made

    def call(input: Any, other: Any, *, out: Any = None) -> Any:
        if out is not None:
            if overriding:
                return call_general(input, other, out=out)
            return into(op, out, without_autocast(call, (input, other), {}), (input, other))
        if casts:
            input, other = cast_arguments(op.name, (input, other))
        try:
            a = input._operand
        except (AttributeError, Overridden):
            kind = input.__class__
            if (kind is float or kind is int) and first_number:
                b = getattr(other, "_array", None)
                if b is not None and b.dtype.char in "fd":
                    return number_first(input, other)
            return call_general(input, other)
        dtype = a.dtype
        kind = other.__class__
        if kind is float or kind is int:
            # A number does not change the type of a floating-point array, nor a whole one that of int64.
            if not takes_numbers or (
                dtype.char not in "fd"
                and (not whole or kind is float or dtype is not _INT64 or not -_TOP <= other < _TOP)
            ):
                return call_general(input, other)
            b = other
            other = None
        else:
            try:
                b = other._operand
            except (AttributeError, Overridden):
                return call_general(input, other)
            if b.dtype is not dtype or b.__class__ is not a.__class__ or (needs_float and dtype.kind != "f"):
                return call_general(input, other)
        try:
            result = kernels[a.__class__](a, b)
        except Exception as error:
            if check is not None:
                check(input, other)
            raise explain(op, (input, other), error) from error
        if result.__class__ is not a.__class__:
            result = backend_for(a).asarray(result)
        made = wrap(result)
        if (
            (input._requires_grad or (other is not None and other._requires_grad))
            and mode.enabled
            and differentiable
        ):
            record_pair(op, input, other, a, b, made)
        return made

    return call


def ternary(op: Op, adapt: Callable[..., tuple[Any, ...]], asked: Asked = None) -> Callable[..., Any]:
    """Lean form of `calls.general` for an op of three tensors and nothing else, whose `adapt` knows that they fit."""
    kernels, tails = op.kernels, op.tails
    call_general = general(op, asked)
    differentiable, casts = is_differentiable(op), casts_of(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            return call_general(*args, **kwargs)
        as_given = args
        if len(args) != 3:
            args += tails.get(len(args), ())
        if casts or len(args) != 3:
            return call_general(*args)
        try:
            given = adapt(*args)
            raw = tuple([t if t is None else t._operand for t in given])
        except (AttributeError, RuntimeError, Overridden):
            return call_general(*as_given)  # which asks the operands, or says what is wrong
        first = raw[0]
        if mapping and (found := mapping[0](raw)) is not None:
            first = found
        try:
            result = kernels[first.__class__](*raw)
        except Exception as error:
            raise explain(op, args, error) from error
        made = wrap(result if result.__class__ is first.__class__ else backend_for(first).asarray(result))
        if mode.enabled and differentiable:
            for t in given:
                if t is not None and t._requires_grad:
                    record(op, given, raw, made)
                    break
        return made

    return call


def single(op: Op, asked: Asked = None) -> Callable[..., Any]:
    """Lean form of `calls.general` for an op of one tensor and options; its result may be a view."""
    kernels, tails = op.kernels, op.tails
    complete = len(op.params) if op.varargs is None else -1
    many = op.varargs == 1 and complete == -1 and len(op.params) == 2  # `x.view(4, 16)` is `x.view((4, 16))`
    adapt, check, watch, is_view = op.adapt, op.check, op.watched, op.view
    differentiable, casts, refused = is_differentiable(op), casts_of(op), REFUSED_BY_OPS.get(op.name)

    def call(*args: Any, **kwargs: Any) -> Any:
        as_given = args
        if kwargs:
            if overriding and is_overridden(args, kwargs):
                return ask(asked() if asked else op.call, args, kwargs)
            if "out" in kwargs:
                return with_out(op, call, args, kwargs)
            args = op.bind(args, dict(kwargs))
        elif len(args) != complete:
            if many and (len(args) > 2 or (len(args) == 2 and args[1].__class__ is int)):
                args = (args[0], args[1:])
            else:
                tail = tails.get(len(args))
                args = op.bind(args, kwargs) if tail is None else args + tail
        if casts:
            args = cast_arguments(op.name, args)
        input = args[0]
        try:
            a = input._operand
        except (AttributeError, Overridden):
            # Which asks the operand, or says what is wrong.
            return general(op, asked)(*as_given, **kwargs)
        if refused is not None and a.dtype is not _FLOAT32 and a.dtype.kind != "f":
            refuse_dtypes(op.name, refused, (input,))
        if check is not None:
            check(*args)
        try:
            options = args[1:] if adapt is None else adapt(*args)[1:]
        except Overridden:  # by an index
            return general(op, asked)(*as_given, **kwargs)
        kind = a.__class__
        if mapping and (found := mapping[0]((a, *options))) is not None:
            kind = found.__class__
        try:
            result = kernels[kind](a, *options)
        except Exception as error:
            raise explain(op, (input, *options), error) from error
        # A scalar of NumPy's becomes an array; what was moved to another device is one already.
        if result.__class__ is not a.__class__ and isinstance(result, np.generic):
            result = backend_for(a).asarray(result)
        out = wrap(result)
        if is_view:
            mark_view(input, out, (call, options))
        if input._requires_grad and mode.enabled and differentiable and (not is_view or counts(out)):
            watched = versions_of([args[i] for i in watch]) if watch else ()
            if kind is a.__class__:
                record_single(op, input, (a, *options), out, watched)
            else:
                record(op, (input,), (a, *options), out, watched=watched)
        return out

    return call
