"""In-place forms of ops: write into a tensor's memory, count the version, and keep the graph right.

How the histories of base and views follow is told in `autograd/views.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from ...autograd.accumulate import edge_of, refresh_view
from ...autograd.grad_mode import mode
from ...autograd.views import check_writable, written
from ...backend.registry import SparseArray, Unsupported, backend_for
from ...core.modes import recorders
from ...core.overrides import OPERANDS, answer, ask, is_overridden, leaving_unknown, overriding
from ...core.tensor import Tensor, wrap
from .autocast import casting
from .declare import Op
from .explain import explain
from .half import DIGITS_KEPT
from .lean_calls import make_call
from .node import OpNode
from .overlap import refuse_overlap
from .signatures import in_place
from .vocabulary import VOCABULARY as F

P = ParamSpec("P")


def inplace(op: Op, operator: bool = False) -> Callable[..., Tensor]:
    """The in-place form of an op: `x.mul_(y)` for `mul`, or as an operator, which leaves unknown operands to Python."""

    def keeps_old(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return 0 in op.plans[-1 if kwargs or op.one_plan else _bits(op, args)].inputs

    return _inplace(op.name, op.call, keeps_old, op, operator)


def inplace_function(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of a function made of ops: `x.addcmul_(a, b)` for `addcmul`."""
    return _inplace(name, function, lambda args, kwargs: True, None)


def with_inplace(op: Op) -> Callable[..., Tensor]:
    """The function of `nn.functional` for an op that is declared with the parameter `inplace`."""
    plain, overwriting = make_call(op, lambda: call), inplace(op)
    if len(op.params) == 1:

        def call(input: Tensor, inplace: bool = False) -> Tensor:
            return overwriting(input) if inplace else plain(input)

    else:
        call = _choosing(plain, overwriting, op.params[0], len(op.params))
    call = functools.wraps(op.call)(call)
    last = inspect.Parameter(
        "inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation="bool"
    )
    parameters = [*op.signature.parameters.values(), last]
    call.__dict__["__signature__"] = op.signature.replace(parameters=parameters)
    return call


def takes_inplace(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A function made of ops that overwrites its first argument if `inplace`, its last parameter, is true.

    `function` itself is never asked for that, and returns a new tensor.
    """
    overwriting = inplace_function(function.__name__, function)
    names = list(inspect.signature(function).parameters)
    return functools.wraps(function)(_choosing(function, overwriting, names[0], len(names) - 1))


def _choosing(
    plain: Callable[..., Tensor], overwriting: Callable[..., Tensor], first: str, place: int
) -> Callable[..., Tensor]:
    """`overwriting` if the argument `inplace` is true, else `plain`.

    first: the name of the first parameter. place: the position of `inplace`, the last one.
    """

    def call(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) == place + 1:
            *args, chosen = args  # type: ignore[assignment]
        else:
            chosen = kwargs.pop("inplace", False)
        if not chosen:
            return plain(*args, **kwargs)
        return overwriting(*(args or [kwargs.pop(first)]), **kwargs)

    return call


_OF_ONE_DTYPE = frozenset(("abs", "float_power"))
"""Functions in place whose results have to be of the tensor's own dtype, as the size of a complex number is not."""


_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def _inplace(
    name: str,
    function: Callable[..., Tensor],
    keeps_old: Callable[[tuple[Any, ...], dict[str, Any]], bool],
    op: Op | None,
    operator: bool = False,
) -> Callable[..., Tensor]:
    def method(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if overriding and is_overridden((input, *args), kwargs):
            return ask(method, (input, *args), kwargs)
        try:
            needs_grad, versions = input._requires_grad, input._versions
        except AttributeError as error:
            return answer(method, (input, *args), kwargs, error)
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, Tensor):
                if value._requires_grad:
                    needs_grad = True
                if value._versions is versions and value is not input and name != "masked_fill":
                    refuse_overlap(name, input, (value,))
            elif operator and value.__class__ is not float and not isinstance(value, OPERANDS):
                return leaving_unknown(ask)(method, (input, value), {})
        recording = needs_grad and mode.enabled
        check_writable(f"{name}_", input, needs_grad=recording)
        if not recording and op is not None and _computed_in_place(op, input, args, kwargs):
            input._versions[0] += 1
            return input
        old = input
        if recording:
            # Rules may need the old value, which is about to be overwritten.
            old = (
                wrap(backend_for(input._array).clone(input._array))
                if keeps_old((input, *args), kwargs)
                else input.detach()
            )
            take_history(old, input)
            result = function(old, *args, **kwargs)
        else:
            result = function(input, *args, **kwargs)
        if result._array.dtype is not input._array.dtype and (
            result.dtype.category > input.dtype.category or name in _OF_ONE_DTYPE
        ):
            raise RuntimeError(
                f"{name}_(): result type {result.dtype.name} can't be cast to the desired output type "
                f"{input.dtype.name}"
            )
        if result._array.shape != input._array.shape:
            raise RuntimeError(
                f"{name}_(): output with shape {list(input.shape)} doesn't match the broadcast shape "
                f"{list(result.shape)}"
            )
        if recording and not result._requires_grad and name in _COMPARISONS:
            result = F.where(F.eq(result, result), F.cast(result, old.dtype), old)  # with gradients of zero
            recording = result._requires_grad
        if recording and not result._requires_grad:
            raise RuntimeError(f"{name}_(): the derivative is not implemented; do it under torch.no_grad()")
        try:
            input._array[...] = result._array
        except Exception as error:
            raise error if op is None else explain(op, (input,), error) from error
        input._versions[0] += 1
        if recorders:
            recorders[0].on_write(input._array, None, result._array)
        if recording:
            give_history(input, result)
        return input

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"In-place form of `{name}`."
    method.__module__ = function.__module__
    method.__dict__["__signature__"] = in_place(
        op.signature if op is not None else inspect.signature(function)
    )
    return method


def _computed_in_place(op: Op, target: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Let the kernel write into `target`, if it is one elementary function of floats of one dtype and of numbers.

    False if it is not, or if it fails: then nothing was written.
    """
    array = target._array
    dtype, kind = array.dtype, array.__class__
    kernel = op.kernels[kind]
    writes = getattr(kernel, "writes", None)
    if (kwargs and writes is None) or dtype.kind != "f" or casting or recorders:
        return False
    if kwargs:
        args = tuple(op.bind((target, *args), dict(kwargs))[1:])
    if writes is None and getattr(kernel, "nin", 0) != len(args) + 1:
        return False
    operands = [array]
    for place, value in enumerate(args, 1):
        if value.__class__ is float or value.__class__ is int:
            # A ufunc would round a number to float16, so that 0.9999 were 1.
            rounds = dtype.itemsize == 2 and op.name in DIGITS_KEPT
            if rounds or (place in op.tensors and place not in op.numbers):
                return False
        elif value is not None or writes is None:
            value = getattr(value, "_array", None)
            if value is None or value.dtype is not dtype:
                return False
            if value.__class__ is not kind and not isinstance(
                value, SparseArray
            ):  # a sparse one is added to some rows
                return False
        operands.append(value)
    try:
        if writes is not None:
            return writes(*operands, out=array) is not NotImplemented
        kernel(*operands, out=array)
    except (TypeError, ValueError, OverflowError, Unsupported):
        return False  # the other way raises an error that names the op and the shapes
    return True


def any_requires_grad(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True when an argument is a Tensor that requires a gradient."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor) and value._requires_grad:
            return True
    return False


def _bits(op: Op, args: tuple[Any, ...]) -> int:
    """Which tensors need a gradient, as a binary number: the place of the op's plan (`rules.Plan`)."""
    tensors = [args[place] if place < len(args) else None for place in op.tensors]
    return sum(1 << k for k, t in enumerate(tensors) if isinstance(t, Tensor) and t._requires_grad)


def take_history(copy: Tensor, of: Tensor) -> None:
    """`copy`, which holds what `of` held before a write, takes the place of `of` in the graph."""
    if of._requires_grad:
        node, nr = edge_of(of)
        assert node is not None
        if of._view is not None and node._tensor_hooks is not None:
            # The gradient of what a view held before goes to its base: hooks on the view do not see it.
            refresh_view(of)
            node, nr = edge_of(of)
            assert node is not None
        copy._grad_fn, copy._output_nr, copy._requires_grad = node, nr, True


def give_history(target: Tensor, result: Tensor) -> None:
    """`target` now holds what `result` computed; the node must see `target`'s version from here on."""
    node, nr = edge_of(result)
    assert node is not None
    if isinstance(node, OpNode):
        node.replace_output(target)
    written(target, node, nr)


def detach_(input: Tensor) -> Tensor:
    """Forget the history; the tensor becomes a leaf."""
    if input._view is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    input._grad_fn, input._output_nr, input._requires_grad = None, 0, False
    return input
