"""`torch.library`: functions under a name, called as `torch.ops.namespace.name`, with a gradient of their own.

Nothing here is compiled or traced, so an op of this kind is an ordinary function with a derivative; what PyTorch
asks for beyond that (schemas, fake kernels, kernels by dispatch key other than the device) is accepted and not used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .autograd import Function
from .core.missing import nearest
from .core.tensor import Tensor

Kernel = Callable[..., Any]


class CustomOpDef:
    """A registered op. Calling it runs the function, whose result has the gradient that `register_autograd` gave.

    Without one, backward through the op raises RuntimeError. Tensors inside of lists get no gradient: an error too.
    """

    def __init__(self, name: str, fn: Kernel) -> None:
        self._qualname = name
        self.__name__ = name.partition("::")[2]
        self.__doc__ = fn.__doc__
        self._fn = fn
        self._kernels: dict[str, Kernel] = {}
        self._signature = inspect.signature(fn)
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
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = tuple(bound.arguments.values())
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
        device = next((v.device.type for v in values if isinstance(v, Tensor)), "cpu")
        arguments = inspect.BoundArguments(
            self._signature,
            dict(zip(self._signature.parameters, values, strict=True)),
        )
        return self._kernels.get(device, self._fn)(*arguments.args, **arguments.kwargs)

    def register_kernel(self, device_types: str | Iterable[str], func: Kernel | None = None, /) -> Any:
        """Run `func` instead for tensors on these devices; without `func`, a decorator."""

        def register(kernel: Kernel) -> Kernel:
            for device in [device_types] if isinstance(device_types, str) else device_types:
                self._kernels[device] = kernel
            return kernel

        return register if func is None else register(func)

    def register_fake(self, fn: Kernel, /) -> Kernel:
        """Returns `fn`: shapes are found by computing."""
        return fn

    def register_autograd(
        self, backward: Kernel, /, *, setup_context: Callable[[Any, Any, Any], None] | None = None
    ) -> None:
        """The gradient: backward(ctx, *grads), with what setup_context(ctx, inputs, output) kept in ctx."""
        self._backward, self._setup = backward, setup_context

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


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
    """Register `fn` as the op `name`, "namespace::name"; without `fn`, a decorator. Returns the `CustomOpDef`."""
    namespace, _, short = name.partition("::")
    if not namespace or not short:
        raise ValueError(f"custom_op(): expected a name such as 'mylib::add', got {name!r}")

    def register(function: Kernel) -> CustomOpDef:
        _ops[name] = CustomOpDef(name, function)
        return _ops[name]

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
    """Returns `func`, or a decorator that does so: shapes are found by computing."""
    return func if func is not None else lambda fn: fn


def load_library(path: Any) -> NoReturn:
    """Refused: a library of PyTorch's C++ ops needs PyTorch. Raises OSError, as for a file that cannot be loaded."""
    raise OSError(f"torch.ops.load_library({str(path)!r}): C++ ops of PyTorch's do not load into ddpgrad")


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


class AtenOp:
    """A handle of one of PyTorch's own ops, which libraries keep in tables; calling it calls the Tensor method."""

    def __init__(self, name: str, overload: str = "") -> None:
        self.__name__ = name
        self._overload = overload

    def __getattr__(self, name: str) -> AtenOp:
        if name.startswith("_") or self._overload:
            raise AttributeError(f"{self!r} has no attribute '{name}'", name=name, obj=self)
        return AtenOp(self.__name__, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        method = getattr(Tensor, self.__name__, None)
        if method is None:
            raise NotImplementedError(f"{self!r}: ddpgrad's Tensor has no method of that name")
        return method(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AtenOp) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"torch.ops.aten.{self.__name__}" + (f".{self._overload}" if self._overload else "")


class Aten:
    """`torch.ops.aten`: handles by any name."""

    def __getattr__(self, name: str) -> AtenOp:
        if name.startswith("__"):
            raise AttributeError(f"'torch.ops.aten' has no attribute '{name}'", name=name, obj=self)
        return AtenOp(name)


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


__all__ = ["CustomOpDef", "custom_op", "register_autograd", "register_fake", "register_kernel"]
