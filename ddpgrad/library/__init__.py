"""`torch.library`: functions under a name, called as `torch.ops.namespace.name`, with a gradient of their own.

Nothing here is compiled or traced, so an op of this kind is an ordinary function with a derivative. It has kernels by
device, and may have others for autocast; a schema gives the names and defaults of its arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..autograd import Function
from ..backend.dtype import DType, float64
from ..backend.elementary.shape import address_of, owner_of
from ..core.missing import nearest
from ..core.tensor import Tensor
from ..ops.dispatch import autocast
from .handles import Aten, AtenOp, load_library  # noqa: F401 - torch.ops.load_library
from .schema import check_arguments, infer_schema, parsed

Kernel = Callable[..., Any]


class CustomOpDef:
    """A registered op. Calling it runs the function, whose result has the gradient that `register_autograd` gave.

    Without one, backward through the op raises RuntimeError. Tensors inside of lists get no gradient: an error too.
    """

    def __init__(
        self,
        name: str,
        fn: Kernel | None,
        signature: inspect.Signature,
        kinds: Mapping[str, str],
        results_are_new: bool = False,
    ) -> None:
        """fn: the kernel for devices without one of their own; None if there is none yet. kinds: arguments' types by name."""
        self._qualname = name
        self.__name__ = name.partition("::")[2]
        self._fn = fn
        self._kernels: dict[str, Kernel] = {}
        self._signature, self._kinds, self._results_are_new = signature, kinds, results_are_new
        self._backward: Kernel | None = None
        self._setup: Kernel | None = None
        op = self

        class Called(Function):
            @staticmethod
            def forward(*args: Any) -> Any:
                return op._run(args)

            @staticmethod
            def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
                if op._setup is not None:
                    op._setup(ctx, inputs, output)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                if op._backward is None:
                    raise RuntimeError(
                        f"Trying to backward through {op._qualname} but no autograd formula was registered. Please use "
                        "torch.library.register_autograd to add one."
                    )
                return op._backward(ctx, *grads)

        Called.__name__ = self.__name__
        self._called = Called

    @property
    def default(self) -> CustomOpDef:
        """The op itself: it has no overloads."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise RuntimeError(f"{self._qualname}() {error}; its arguments are {self._signature}") from None
        check_arguments(self._qualname, self._kinds, bound.arguments)
        bound.apply_defaults()
        values = tuple(bound.arguments.values())
        if autocast.casting:
            device = _device_type(values)
            kernel = self._kernels.get(f"autocast {device}")
            if kernel is not None and autocast.state.enabled.get(device):
                return kernel(*bound.args, **bound.kwargs)
        if self._backward is not None:
            self._refuse_lists(values)
        return self._called.apply(*values)

    def _refuse_lists(self, values: Iterable[Any]) -> None:
        for value in values:
            if isinstance(value, (list, tuple)) and any(
                isinstance(v, Tensor) and v.requires_grad for v in value
            ):
                raise NotImplementedError(
                    f"{self._qualname}: gradients of tensors inside of a list; give the tensors one by one, or stack them"
                )

    def _run(self, values: tuple[Any, ...]) -> Any:
        kernel = self._kernels.get(device := _device_type(values), self._fn)
        if kernel is None:
            raise NotImplementedError(
                f"{self._qualname}: no kernel for tensors on {device!r}; those that were registered are for "
                f"{sorted(self._kernels) or 'no device'}"
            )
        arguments = inspect.BoundArguments(
            self._signature,
            dict(zip(self._signature.parameters, values, strict=True)),
        )
        result = kernel(*arguments.args, **arguments.kwargs)
        if self._results_are_new:
            self._refuse_aliases(values, result)
        return result

    def _refuse_aliases(self, values: tuple[Any, ...], result: Any) -> None:
        """Views of arguments would be changed, and have histories, behind autograd's back."""
        known = [_memory(tensor) for tensor in _tensors(values)]
        for tensor in _tensors(result if isinstance(result, (list, tuple)) else (result,)):
            place = _memory(tensor)
            if place is not None and place in known:
                raise RuntimeError(
                    f"{self._qualname}: The output of this custom operator (1) must not also be an input to this custom "
                    "operator and (2) may not alias any inputs to this custom operator or other returns; return a clone, "
                    "such as x.clone()"
                )
            known.append(place)

    def register_kernel(self, device_types: str | Iterable[str], func: Kernel | None = None, /) -> Any:
        """Run `func` instead for tensors on these devices; without `func`, a decorator."""

        def register(kernel: Kernel) -> Kernel:
            for device in [device_types] if isinstance(device_types, str) else device_types:
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
            self._called.vmap = staticmethod(function)
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

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
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


_ops: dict[str, CustomOpDef] = {}


def custom_op(
    name: str,
    fn: Kernel | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Register `fn` as the op `name`, "namespace::name"; without `fn`, a decorator. Returns the `CustomOpDef`.

    Its arguments have the types of a schema, or of the annotations of `fn`: ValueError where these say none. What it
    returns is new memory. device_types: the devices that `fn` is for, by default all.
    """
    namespace, _, short = name.partition("::")
    if not namespace or not short:
        raise ValueError(f"custom_op(): expected a name such as 'mylib::add', got {name!r}")

    def register(function: Kernel) -> CustomOpDef:
        said = schema or infer_schema(function, mutates_args=mutates_args)
        kinds = parsed(f"{short}{said}")[2]
        op = CustomOpDef(
            name, None if device_types else function, inspect.signature(function), kinds, results_are_new=True
        )
        op.__doc__ = function.__doc__
        if device_types:
            op.register_kernel(device_types, function)
        _ops[name] = op
        return op

    return register if fn is None else register(fn)


def _op(op: str | CustomOpDef) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _ops:
        raise RuntimeError(f"torch.library: no op '{op}' was registered with custom_op{nearest(op, _ops)}")
    return _ops[op]


def register_autograd(
    op: str | CustomOpDef,
    backward: Kernel,
    /,
    *,
    setup_context: Callable[[Any, Any, Any], None] | None = None,
    lib: Any = None,
) -> None:
    """See `CustomOpDef.register_autograd`."""
    _op(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(
    op: str | CustomOpDef,
    device_types: str | Iterable[str],
    func: Kernel | None = None,
    /,
    *,
    lib: Any = None,
) -> Any:
    """See `CustomOpDef.register_kernel`."""
    return _op(op).register_kernel(device_types, func)


def register_fake(op: str | CustomOpDef, func: Kernel | None = None, /, **kwargs: Any) -> Any:
    """See `CustomOpDef.register_fake`; without `func`, a decorator."""
    return _op(op).register_fake if func is None else _op(op).register_fake(func)


def register_autocast(
    op: str | CustomOpDef, device_type: str, cast_inputs: DType, /, *, lib: Any = None
) -> None:
    """See `CustomOpDef.register_autocast`."""
    _op(op).register_autocast(device_type, cast_inputs)


def register_vmap(op: str | CustomOpDef, func: Kernel | None = None, /, *, lib: Any = None) -> Any:
    """See `CustomOpDef.register_vmap`; without `func`, a decorator."""
    return _op(op).register_vmap(func)


class Library:
    """Ops of one namespace, defined by schemas, and kernels for them.

    kind: "DEF" or "FRAGMENT" to define ops, "IMPL" to give kernels only; all three may do both here. dispatch_key: for
    which `impl` gives kernels, where the call does not say.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f"Library(): kind must be 'DEF', 'FRAGMENT' or 'IMPL', got {kind!r}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define the op of a schema, without kernels. Returns its name."""
        name, signature, kinds = parsed(schema)
        full = f"{self.ns}::{name}"
        _ops[full] = CustomOpDef(full, None, signature, kinds)
        return name

    def impl(self, op_name: str | CustomOpDef, fn: Kernel, dispatch_key: str = "", **kwargs: Any) -> None:
        """Let `fn` compute the op for a dispatch key.

        The keys are CPU, CUDA, Meta, AutocastCPU, AutocastCUDA, and CompositeExplicitAutograd (or
        CompositeImplicitAutograd) for devices without a kernel of their own. NotImplementedError for others that
        are devices here: a gradient is given by `register_autograd`. Keys of devices that are not here have no effect.
        """
        op = _op(op_name if isinstance(op_name, CustomOpDef) or "::" in op_name else f"{self.ns}::{op_name}")
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if key.startswith("Composite"):
            op._fn = fn
        elif key.startswith("Autograd") or key in ("Functionalize", "BackendSelect", "ADInplaceOrView"):
            raise NotImplementedError(
                f"torch.library: kernels of {op._qualname} for the dispatch key {key!r} are not called here; give the "
                "gradient by torch.library.register_autograd"
            )
        else:
            autocast = "autocast " if key.startswith("Autocast") else ""
            op.register_kernel(autocast + key.removeprefix("Autocast").lower(), fn)


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> None:
    """Define the op "namespace::name" with the arguments of a schema, such as "(Tensor x, int n=1) -> Tensor"."""
    namespace, _, name = qualname.partition("::")
    (lib or Library(namespace, "FRAGMENT")).define(name + schema)


def impl(
    qualname: str | Library, types: str | Iterable[str], func: Any = None, key: str = "", *, lib: Any = None
) -> Any:
    """Give the op "namespace::name" the kernel `func` for devices ("cpu", "cuda", "default"); without `func`, a decorator.

    Also the older decorator impl(library, name, dispatch_key).
    """
    if isinstance(qualname, Library):
        library, name = qualname, str(types)

        def give(kernel: Kernel) -> Kernel:
            library.impl(name, kernel, func or key)
            return kernel

        return give

    def register(kernel: Kernel) -> Kernel:
        op = _op(qualname)
        for device in [types] if isinstance(types, str) else types:
            if device in ("default", "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
                op._fn = kernel
            else:
                op.register_kernel(device.lower(), kernel)
        return kernel

    return register if func is None else register(func)


class Namespace:
    """`torch.ops.name`: the ops that were registered under that name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> CustomOpDef:
        full = f"{self._name}::{name}"
        if full not in _ops:
            raise AttributeError(
                f"'torch.ops.{self._name}' has no attribute '{name}'{nearest(name, (f.partition('::')[2] for f in _ops))}"
            )
        return _ops[full]


def namespace(name: str) -> Namespace | Aten:
    """The ops under `name`; AttributeError when none were registered."""
    if name == "aten":
        return Aten()
    if not any(full.startswith(f"{name}::") for full in _ops):
        raise AttributeError(
            f"module 'torch.ops' has no attribute '{name}': ddpgrad knows the ops that torch.library.custom_op registered, "
            "and none of PyTorch's C++ or of a library's extension"
        )
    return Namespace(name)


__all__ = [
    "AtenOp", "CustomOpDef", "Library", "custom_op", "define", "impl", "infer_schema", "register_autocast",
    "register_autograd", "register_fake", "register_kernel", "register_vmap",
]  # fmt: skip
