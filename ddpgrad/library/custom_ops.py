"""One op of `torch.library`: its kernels, its gradient, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..autograd import Function
from ..backend.dtype import DType, float64
from ..backend.elementary.shape import address_of, owner_of
from ..core.dispatching import dispatch, is_told, telling
from ..core.tensor import Tensor
from ..ops.dispatch import autocast
from .lists import Layout, with_lists
from .schema import Schema, check_arguments, check_results

Kernel = Callable[..., Any]


class CustomOpDef:
    """A registered op. Calling it runs the function, whose result has the gradient that `register_autograd` gave.

    Without one, backward through the op raises RuntimeError.
    """

    def __init__(self, name: str, fn: Kernel | None, schema: Schema, results_are_new: bool = False) -> None:
        """fn: the kernel for devices without one of their own; None if there is none yet."""
        self._qualname = name
        self._name = self.__name__ = name.partition("::")[2]
        self._fn = fn
        self._kernels: dict[str, Kernel] = {}
        self._schema, self._results_are_new = schema, results_are_new
        self._backward: Kernel | None = None
        self._setup: Kernel | None = None
        self._called = _function_of(self)
        self._overloads: dict[str, CustomOpDef] = {}

    def __getattr__(self, name: str) -> CustomOpDef:
        try:
            return self.__dict__["_overloads"][name]
        except KeyError:
            raise AttributeError(
                f"the op {self.__dict__.get('_qualname')} has no overload {name!r}"
            ) from None

    @property
    def default(self) -> CustomOpDef:
        """The overload without a name."""
        return self._overloads.get("default", self)

    _opoverload = default  # PyTorch's name of it for ops made by `custom_op`

    def overloads(self) -> list[str]:
        """The names of the op's overloads."""
        return list(self._overloads) or ["default"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature = self._schema.signature
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise RuntimeError(f"{self._qualname}() {error}; its arguments are {signature}") from None
        check_arguments(self._qualname, self._schema.kinds, bound.arguments)
        bound.apply_defaults()
        values = tuple(bound.arguments.values())
        if autocast.casting:
            device = _device_type(values)
            kernel = self._kernels.get(f"autocast {device}")
            if kernel is not None and autocast.state.enabled.get(device):
                return kernel(*bound.args, **bound.kwargs)
        if not self._schema.has_lists:
            return self._called.apply(*values)
        layout = Layout(values)
        return layout.result(self._called.apply(*layout.flat(values), layout))

    def _run(self, values: tuple[Any, ...]) -> Any:
        if telling and is_told(values, {}):
            return dispatch(self, values, {})
        kernel = self._kernels.get(device := _device_type(values), self._fn)
        if kernel is None:
            raise NotImplementedError(
                f"{self._qualname}: no kernel for tensors on {device!r}; those that were registered are for "
                f"{sorted(self._kernels) or 'no device'}"
            )
        arguments = inspect.BoundArguments(
            self._schema.signature, dict(zip(self._schema.signature.parameters, values, strict=True))
        )
        result = kernel(*arguments.args, **arguments.kwargs)
        check_results(self._qualname, self._schema, result)
        if self._results_are_new:
            self._refuse_aliases(values, result)
        return result

    def _refuse_aliases(self, values: tuple[Any, ...], result: Any) -> None:
        """Views of arguments would be changed, and have histories, behind autograd's back."""
        known = [_memory(tensor) for tensor in tensors_in(values)]
        for tensor in tensors_in(result if isinstance(result, (list, tuple)) else (result,)):
            place = _memory(tensor)
            if place is not None and place in known:
                raise RuntimeError(
                    f"{self._qualname}: The output of this custom operator (1) must not also be an input to this custom "
                    "operator and (2) may not alias any inputs to this custom operator or other returns; return a clone, "
                    "such as x.clone()"
                )
            known.append(place)

    def register_kernel(self, device_types: str | Iterable[str], func: Kernel | None = None, /) -> Any:
        """Run `func` instead for tensors on these devices, "default" for all others; without `func`, a decorator."""

        def register(kernel: Kernel) -> Kernel:
            for device in [device_types] if isinstance(device_types, str) else device_types:
                if device == "default" or device.lower().startswith("composite"):
                    self._fn = kernel
                else:
                    self._kernels[device] = kernel
            return kernel

        return register if func is None else register(func)

    def register_fake(self, fn: Kernel, /) -> Kernel:
        """What finds shape and dtype of a result: the kernel for tensors on the device meta. Returns `fn`."""
        self._kernels["meta"] = fn
        return fn

    def register_autograd(
        self, backward: Kernel, /, *, setup_context: Callable[[Any, Any, Any], None] | None = None
    ) -> None:
        """The gradient: backward(ctx, *grads), with what setup_context(ctx, inputs, output) kept in ctx."""
        self._backward, self._setup = backward, setup_context

    def register_autocast(self, device_type: str, cast_inputs: DType) -> None:
        """Under autocast for these devices give floating-point tensors in the type `cast_inputs`."""

        def cast(value: Any) -> Any:
            eligible = isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not float64
            return value.to(cast_inputs) if eligible and value.device.type == device_type else value

        def kernel(*args: Any, **kwargs: Any) -> Any:
            given = {name: cast(value) for name, value in kwargs.items()}
            return autocast.without_autocast(self, [cast(value) for value in args], given)

        self._kernels[f"autocast {device_type}"] = kernel

    def register_vmap(self, func: Kernel | None = None, /) -> Any:
        """What `vmap` calls, as func(info, in_dims, *args), and returns (results, their dimensions); see `Function.vmap`."""

        def register(function: Kernel) -> Kernel:
            lists = self._schema.has_lists
            self._called.vmap = staticmethod(with_lists(function) if lists else function)
            return function

        return register if func is None else register(func)

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """A block in which the kernel for these devices is not used, or is used again."""
        kernel = self._kernels.get(device_type)
        if not enabled:
            self._kernels.pop(device_type, None)
        try:
            yield
        finally:
            if kernel is not None:
                self._kernels[device_type] = kernel

    def __str__(self) -> str:
        """The name by which those are told of it that are told of ops."""
        return f"{self._qualname.replace('::', '.')}.default"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (one for one in value if isinstance(one, Tensor))


def _memory(tensor: Tensor) -> tuple[str, int] | None:
    """Which memory a tensor lies in; None for one without elements that lie somewhere."""
    if tensor.is_sparse or tensor.is_meta or not tensor.numel():
        return None
    return str(tensor.device), address_of(owner_of(tensor._array))


def _device_type(values: Iterable[Any]) -> str:
    return next((v.device.type for v in values if isinstance(v, Tensor)), "cpu")


def _function_of(op: CustomOpDef) -> type[Function]:
    """The autograd Function of an op. Where the op has lists of tensors, it is given their elements and a `Layout`."""
    schema = op._schema
    lists, positional = schema.has_lists, schema.positional

    def forward(*args: Any) -> Any:
        if not lists:
            return op._run(args)
        layout = args[-1]
        return layout.flat_result(op._run(layout.values(args[:-1])))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if lists:
            layout = ctx._layout = inputs[-1]
            inputs, output = layout.values(inputs[:-1]), layout.result(output)
        if op._setup is None:
            return
        named = dict(zip(list(schema.signature.parameters)[positional:], inputs[positional:], strict=True))
        with _asked_for(ctx, lists, positional):
            if named:
                op._setup(ctx=ctx, inputs=inputs[:positional], keyword_only_inputs=named, output=output)
            else:
                op._setup(ctx, inputs, output)

    def backward(ctx: Any, *grads: Any) -> Any:
        if op._backward is None:
            raise RuntimeError(
                f"Trying to backward through {op._qualname} but no autograd formula was registered. Please use "
                "torch.library.register_autograd to add one."
            )
        if lists:
            grads = ctx._layout.grads(grads)
        with _asked_for(ctx, lists, positional):
            found = op._backward(ctx, *grads)
        found = found if isinstance(found, tuple) else (found,)
        if len(found) == positional:
            found += (None,) * (len(schema.signature.parameters) - positional)
        return (*ctx._layout.flat_grads(op._qualname, found), None) if lists else found

    functions = {"forward": forward, "setup_context": setup_context, "backward": backward}
    name = f"GeneratedBackwardFor_{op._qualname.replace('::', '_')}_default"
    return type(name, (Function,), {key: staticmethod(function) for key, function in functions.items()})


@contextmanager
def _asked_for(ctx: Any, lists: bool, positional: int) -> Iterator[None]:
    """A block in which `ctx.needs_input_grad` has an entry for each positional argument, a list for a list."""
    flat = ctx.needs_input_grad
    ctx.needs_input_grad = (ctx._layout.values(flat[:-1]) if lists else flat)[:positional]
    try:
        yield
    finally:
        ctx.needs_input_grad = flat
