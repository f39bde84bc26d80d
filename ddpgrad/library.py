"""`torch.library`: functions under a name, called as `torch.ops.namespace.name`, with a gradient of their own.

Nothing here is compiled or traced, so an op of this kind is an ordinary function with a derivative. It has kernels by
device, and may have others for autocast; a schema gives the names and defaults of its arguments.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from .autograd import Function
from .core.missing import nearest
from .core.tensor import Tensor
from .ops.dispatch import autocast

Kernel = Callable[..., Any]


class CustomOpDef:
    """A registered op. Calling it runs the function, whose result has the gradient that `register_autograd` gave.

    Without one, backward through the op raises RuntimeError. Tensors inside of lists get no gradient: an error too.
    """

    def __init__(self, name: str, fn: Kernel | None, signature: inspect.Signature) -> None:
        """fn: the kernel for devices without one of their own; None if there is none yet."""
        self._qualname = name
        self.__name__ = name.partition("::")[2]
        self.__doc__ = fn.__doc__
        self._fn = fn
        self._kernels: dict[str, Kernel] = {}
        self._signature = signature
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
        return kernel(*arguments.args, **arguments.kwargs)

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

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


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
    """Register `fn` as the op `name`, "namespace::name"; without `fn`, a decorator. Returns the `CustomOpDef`."""
    namespace, _, short = name.partition("::")
    if not namespace or not short:
        raise ValueError(f"custom_op(): expected a name such as 'mylib::add', got {name!r}")

    def register(function: Kernel) -> CustomOpDef:
        _ops[name] = CustomOpDef(name, function, inspect.signature(function))
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
    """See `CustomOpDef.register_fake`; without `func`, a decorator."""
    return _op(op).register_fake if func is None else _op(op).register_fake(func)


_SCHEMA = re.compile(r"\s*([\w:]+)(?:\.\w+)?\s*\((.*)\)\s*->.*", re.DOTALL)
_ARGUMENT = re.compile(r"(?:\[[^\]]*\]|\([^)]*\)|[^,])+")


def _parsed(schema: str) -> tuple[str, inspect.Signature]:
    """The name of an op and its arguments, from "add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"."""
    found = _SCHEMA.fullmatch(schema)
    if found is None:
        raise RuntimeError(
            f"torch.library: {schema!r} is no schema, such as 'add(Tensor x, float by=1.0) -> Tensor'"
        )
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    for text in map(str.strip, _ARGUMENT.findall(found[2])):
        if text == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        declared, has_default, default = text.partition("=")
        value = ast.literal_eval(default) if has_default else inspect.Parameter.empty
        parameters.append(inspect.Parameter(declared.split()[-1], kind, default=value))
    return found[1], inspect.Signature(parameters)


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
        name, signature = _parsed(schema)
        full = f"{self.ns}::{name}"
        _ops[full] = CustomOpDef(full, None, signature)
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


_WRITTEN_HERE = {
    "torchaudio/lib/_torchaudio": "extras.torchaudio_ops",
    "torchaudio/lib/libtorchaudio": "extras.torchaudio_ops",
    "torchvision/_C": "extras.torchvision_ops",
}
"""Libraries of C++ ops, by the ends of their paths without what follows the first dot of the name -> the module that defines the same ops here."""


def load_library(path: Any) -> None:
    """Define the ops of a library in C++, where they are written here too: those of torchvision and torchaudio.

    Raises OSError for any other, as for a file that cannot be loaded: a library of PyTorch's C++ ops needs PyTorch.
    """
    place = Path(path).parent / Path(path).name.partition(".")[0]
    module = next(
        (module for end, module in _WRITTEN_HERE.items() if place.as_posix().endswith(f"/{end}")), None
    )
    if module is None:
        raise OSError(f"torch.ops.load_library({str(path)!r}): C++ ops of PyTorch's do not load into ddpgrad")
    import_module(f"{__name__.partition('.')[0]}.{module}")


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


__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "register_autograd", "register_fake", "register_kernel",
]  # fmt: skip
