"""How the public function of an op runs: arrays out of Tensors, the kernel, a Tensor, and its history.

`make_call` picks the leanest of four forms that fits the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.grad_mode import mode
from ...backend.dtype import bfloat16
from ...backend.registry import backend_for
from ...core.tensor import Tensor, wrap
from .autocast import cast_arguments, casting, is_listed
from .explain import explain
from .node import record, record_pair, record_single
from .out import write_out
from .promotion import promotion_of
from .views import counts, mark_view, several_views

if TYPE_CHECKING:
    from .declare import Op


def make_call(op: Op) -> Callable[..., Any]:
    """The public function of `op`."""
    if op.view == "several":
        return several_views(op)
    plain = op.outputs == 1 and not op.extras and op.varargs is None and not op.sequence
    if plain and not op.view and op.adapt is None and len(op.params) == len(op.tensors):
        if len(op.params) == 1:
            return _unary(op)
        if len(op.params) == 2:
            return _binary(op)
    if op.outputs == 1 and not op.extras and not op.sequence and op.tensors == (0,) and op.promotion is None:
        return _single(op)
    return _general(op)


def _differentiable(op: Op) -> bool:
    return bool(op.rules) or op.joint is not None


def _casts(op: Op) -> Sequence[Any]:
    """Something that is true while some thread is within autocast and autocast has a say in `op`."""
    return casting if is_listed(op.name) else ()


def _unary(op: Op) -> Callable[..., Any]:
    """The public function of an op of one tensor and nothing else."""
    kernels = op.kernels
    general = _general(op)
    needs_float = op.promotion == "float" or op.check is not None
    differentiable = _differentiable(op)
    casts = _casts(op)

    def call(input: Any, *, out: Any = None) -> Any:
        if out is not None:
            return write_out(op.name, out, call(input))
        if casts:
            (input,) = cast_arguments(op.name, (input,))
        try:
            a = input._array
        except AttributeError:
            return general(input)
        if needs_float and a.dtype.kind != "f":
            return general(input)
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


def _binary(op: Op) -> Callable[..., Any]:
    """The public function of an op of two tensors or numbers and nothing else."""
    kernels = op.kernels
    general = _general(op)
    needs_float = op.promotion in ("float", "ordered")
    first_number, takes_numbers = (op.promotion is not None and i in op.numbers for i in (0, 1))
    differentiable = _differentiable(op)
    check, casts, reflected_name = op.check, _casts(op), op.reflected_name

    def number_first(input: Any, other: Tensor) -> Any:
        """`1 - x` for floating-point `x`: as `call` does for `x - 1`."""
        b = other._array
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
            return write_out(op.name, out, call(input, other))
        if casts:
            input, other = cast_arguments(op.name, (input, other))
        try:
            a = input._array
        except AttributeError:
            kind = input.__class__
            if (kind is float or kind is int) and first_number:
                b = getattr(other, "_array", None)
                if b is not None and b.dtype.kind == "f":
                    return number_first(input, other)
            return general(input, other)
        dtype = a.dtype
        kind = other.__class__
        if kind is float or kind is int:
            # A number does not change the type of a floating-point array.
            if dtype.kind != "f" or not takes_numbers:
                return general(input, other)
            b = other
            other = None
        else:
            try:
                b = other._array
            except AttributeError:
                return general(input, other)
            if b.dtype is not dtype or b.__class__ is not a.__class__ or (needs_float and dtype.kind != "f"):
                return general(input, other)
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


def _single(op: Op) -> Callable[..., Any]:
    """The public function of an op of one tensor and options; its result may be a view."""
    kernels, tails = op.kernels, op.tails
    complete = len(op.params) if op.varargs is None else -1
    many = op.varargs == 1 and complete == -1 and len(op.params) == 2  # `x.view(4, 16)` is `x.view((4, 16))`
    adapt, check, watch, is_view = op.adapt, op.check, op.watched, op.view
    differentiable, casts = _differentiable(op), _casts(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if "out" in kwargs:
                into = kwargs.pop("out")
                return _into(op, into, call(*args, **kwargs))
            args = op.bind(args, kwargs)
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
            a = input._array
        except AttributeError:
            raise TypeError(f"{op.name}(): expected a Tensor, got {type(input).__name__}") from None
        if check is not None:
            check(*args)
        options = args[1:] if adapt is None else adapt(*args)[1:]
        try:
            result = kernels[a.__class__](a, *options)
        except Exception as error:
            raise explain(op, (input, *options), error) from error
        # A scalar of NumPy's becomes an array; what was moved to another device is one already.
        if result.__class__ is not a.__class__ and isinstance(result, np.generic):
            result = backend_for(a).asarray(result)
        out = wrap(result)
        if is_view:
            mark_view(input, out, (call, options))
        if input._requires_grad and mode.enabled and differentiable and (not is_view or counts(out)):
            record_single(
                op, input, (a, *options), out, versions_of([args[i] for i in watch]) if watch else ()
            )
        return out

    return call


def _general(op: Op) -> Callable[..., Any]:
    """The public function of any op."""
    kernels, tails = op.kernels, op.tails
    complete = len(op.params) if op.varargs is None else -1
    tensors, adapt, check, sequence, watch = op.tensors, op.adapt, op.check, op.sequence, op.watched
    numbers, promote = op.numbers, promotion_of(op)
    promotes = op.promotion is not None
    first_place = tensors[0] if tensors else 0
    multiple = op.outputs > 1 or bool(op.extras)
    visible = op.outputs
    # Places of outputs without a gradient that are kept, and that users may change.
    guarded = [i for i, name in enumerate(op.extras[: visible - 1], 1) if name in op.keep]
    differentiable, casts = _differentiable(op), _casts(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if "out" in kwargs:
                into = kwargs.pop("out")
                return _into(op, into, call(*args, **kwargs))
            args = op.bind(args, kwargs)
        elif len(args) != complete:
            tail = tails.get(len(args))
            args = op.bind(args, kwargs) if tail is None else args + tail
        if casts:
            args = cast_arguments(op.name, args)
        received = args
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
        try:
            result = kernels[first.__class__](*raw)
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
            result = result.astype(
                dtype.numpy
            )  # NumPy takes a bfloat16 array and a number to float32 or float64
        out = wrap(result)
        outs = [out]
        if visible > 1:
            asarray = backend_for(first).asarray
            outs += [wrap(asarray(m)) for m in more[: visible - 1]]
        if mode.enabled and differentiable:
            for t in given:
                if isinstance(t, Tensor) and t._requires_grad:
                    watched = versions_of([received[i] for i in watch])
                    if op.differentiable > 1:
                        record(op, given, tuple(raw), out, more, outs[: op.differentiable], watched)
                    else:
                        watched += [outs[i]._versions for i in guarded]
                        record(op, given, tuple(raw), out, more, None, watched)
                    break
        return out if visible == 1 else tuple(outs)

    return call


def _into(op: Op, out: Any, result: Any) -> Any:
    """`result`, or `out` with it when the caller gave one."""
    return result if out is None else write_out(op.name, out, result)


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
    raise TypeError(f"{op.name}(): at least one argument must be a Tensor, got {got}")


def _array(op: Op, value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._array
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy scalar counts as a number
        return value.item()
    raise TypeError(f"{op.name}(): expected a Tensor, got {type(value).__name__}")
