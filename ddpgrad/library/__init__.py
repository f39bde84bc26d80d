"""`torch.library`: functions under a name, called as `torch.ops.namespace.name`, with a gradient of their own.

Nothing here is compiled or traced, so an op of this kind is an ordinary function with a derivative. It has kernels by
device, and may have others for autocast; a schema gives the names and defaults of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..backend.dtype import DType
from ..compat import absent
from ..core.missing import nearest
from ..ops import COLLECTIVES
from .checks import opcheck
from .custom_ops import CustomOpDef, Kernel
from .handles import collectives, load_library, pytorchs  # noqa: F401 - torch.ops.load_library
from .schema import infer_schema, parsed

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
        said = parsed(f"{name}{schema or infer_schema(function, mutates_args=mutates_args)}")
        if schema and mutates_args != "unknown" and set(mutates_args) != said.changed:
            raise ValueError(
                f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={schema}`. The schema "
                f"suggests that the op mutates {set(said.changed) or 'nothing'}, which is different from what was "
                "provided to us in `mutates_args`. Please make these consistent."
            )
        op = CustomOpDef(
            name, None if device_types else function, said.with_defaults_of(function), results_are_new=True
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
        said = parsed(f"{self.ns}::{schema.strip()}")
        full = f"{said.name}.{said.overload_name}".removesuffix(".").removesuffix(".default")
        op = CustomOpDef(full, None, said)
        # The overload without a name, or the first one, stands for the op.
        op._overloads = _ops.setdefault(said.name, op)._overloads
        op._overloads[said.overload_name or "default"] = _ops[full] = op
        return full.partition("::")[2]

    def impl(self, op_name: str | CustomOpDef, fn: Kernel, dispatch_key: str = "", **kwargs: Any) -> None:
        """Let `fn` compute the op for a dispatch key.

        The keys are CPU, CUDA, Meta, AutocastCPU, AutocastCUDA, and CompositeExplicitAutograd (or
        CompositeImplicitAutograd) for devices without a kernel of their own. NotImplementedError for others that
        are devices here: a gradient is given by `register_autograd`. Keys of devices that are not here have no effect.
        """
        op = _op(op_name if isinstance(op_name, CustomOpDef) or "::" in op_name else f"{self.ns}::{op_name}")
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if key.startswith("Autograd") or key in ("Functionalize", "BackendSelect", "ADInplaceOrView"):
            raise NotImplementedError(
                f"torch.library: kernels of {op._qualname} for the dispatch key {key!r} are not called here; give the "
                "gradient by torch.library.register_autograd"
            )
        autocast = "autocast " if key.startswith("Autocast") else ""
        op.register_kernel(autocast + key.removeprefix("Autocast").lower(), fn)


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> None:
    """Define the op "namespace::name" with the arguments of a schema, such as "(Tensor x, int n=1) -> Tensor"."""
    namespace, _, name = qualname.partition("::")
    if not namespace or not name:
        raise ValueError(f'define(): expected a name of the form "namespace::name", got {qualname!r}')
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
        devices = [types] if isinstance(types, str) else types
        return _op(qualname).register_kernel([device.lower() for device in devices], kernel)

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


_PYTORCHS = frozenset(
    [
        "higher_order", "inductor", "mkldnn", "onednn", "prim", "prims", "quantized",
        "quantized_decomposed", "symm_mem",
    ]
)  # fmt: skip
"""Namespaces of PyTorch's own ops, some of which libraries name while they are imported."""


def namespace(name: str) -> Any:
    """The ops under `name`, which may be registered later, as in PyTorch."""
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.ops' has no attribute '{name}'")
    if name == "aten":
        return pytorchs()
    if name in COLLECTIVES:
        return collectives(name)
    if name in _PYTORCHS and not any(full.startswith(f"{name}::") for full in _ops):
        return absent.Blank(
            f"torch.ops.{name}", "of PyTorch's own ops there are those of torch.ops.aten here"
        )
    return Namespace(name)


__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "infer_schema", "opcheck", "register_autocast",
    "register_autograd", "register_fake", "register_kernel", "register_vmap",
]  # fmt: skip
