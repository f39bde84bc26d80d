"""Proxies: what a function that is traced computes with. Each call on one is noted as a node."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from ...backend.device import Device
from ...backend.dtype import DType
from ...core.size import Layout
from ...core.tensor import Tensor
from .codegen import BINARY, UNARY
from .graph import Graph
from .node import Argument, Node, Target, map_aggregate

_PLAIN = (
    str, int, float, bool, complex, bytes, range, DType, Device, Layout, Tensor, type(None), type(...), enum.Enum,
)  # fmt: skip
# Whose code is to be traced, of this package; to the rest a proxy has no attributes, which has ops ask `__torch_function__`.
_PACKAGE = __name__.partition(".")[0]
_TRACED = (f"{_PACKAGE}.nn.modules.", f"{_PACKAGE}.extras.")


class TraceError(ValueError):
    """The program asks for something that is not known while it is traced."""


class Scope(NamedTuple):
    """The module within which calls are noted."""

    module_path: str
    module_type: Any


class TracerBase:
    """Makes nodes of calls."""

    graph: Graph
    record_stack_traces: bool = False
    proxy_buffer_attributes: bool = False
    scope: Scope = Scope("", None)
    module_stack: dict[str, Any]

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A node in the graph; its arguments are nodes and plain data."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if stack := getattr(self, "module_stack", None):
            node.meta["nn_module_stack"] = dict(stack)
        if self.record_stack_traces:
            frames = (
                f for f in inspect.stack(0)[1:] if not f.filename.startswith(__file__.rpartition("/")[0])
            )
            node.stack_trace = "".join(
                f'File "{f.filename}", line {f.lineno}, in {f.function}\n' for f in frames
            )
        return node

    def proxy(self, node: Node) -> Proxy:
        """What the program gets for a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """A node whose arguments may be proxies, and the proxy of it."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a: Any) -> Argument:
        """`a` as an argument of a node: proxies become nodes. NotImplementedError for what a graph cannot hold."""
        return map_aggregate(a, self._one_arg, _no_proxy)

    def _one_arg(self, a: Any) -> Argument:
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, Node):
            return a
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            values = {field.name: self.create_arg(getattr(a, field.name)) for field in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), values)
        if isinstance(a, (*_PLAIN, type)) or callable(a):
            return a
        raise NotImplementedError(
            f"argument of type: {type(a)}: a graph holds tensors, numbers, strings, functions, and tuples, lists, dicts and "
            "slices of them. A function that takes something else stays one call after torch.fx.wrap"
        )

    def to_bool(self, obj: Proxy) -> bool:
        """Called where the program asks whether a proxy is true."""
        raise TraceError(
            f"symbolically traced variables cannot be used as inputs to control flow ({_where()}): which branch is taken would "
            "depend on the values. Keep the choice in a module that is a leaf of the tracer, or in a function marked by torch.fx.wrap"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Called where the program goes through a proxy: where it is unpacked, the number of values is known."""
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        count = _unpacked(frame)
        if count is not None:
            return (obj[i] for i in range(count))
        raise TraceError(
            f"Proxy object cannot be iterated ({_where()}). This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument: how often is not known while the program is traced"
        )

    def keys(self, obj: Proxy) -> Any:
        """Called for `obj.keys()`, and for **obj."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Appends to a graph that is there, for programs that build one by hand with proxies."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


def _no_proxy(key: Any) -> None:
    if find_proxy(key) is not None:
        raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}")


def _where() -> str:
    """The line of the program that is traced."""
    frame: Any = sys._getframe(1)
    folder = __file__.rpartition("/")[0]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(folder):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _unpacked(frame: Any) -> int | None:
    """How many values the instruction that `frame` is at unpacks; None if it does something else."""
    import dis

    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti:
            return instruction.arg if instruction.opname.startswith("UNPACK_SEQUENCE") else None
    return None


class Proxy:
    """Stands for the value of a node while a function is traced.

    Operators, methods, attributes, and functions that ask `__torch_function__` make further nodes.
    Source: https://pytorch.org/docs/stable/fx.html#torch.fx.Proxy
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        asker = sys._getframe(1).f_globals.get("__name__", "")
        if k in ("node", "tracer") or (asker.startswith(f"{_PACKAGE}.") and not asker.startswith(_TRACED)):
            raise AttributeError(f"'Proxy' object has no attribute '{k}'")
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __getitem__(self, key: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.getitem, (self, key), {})

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __index__(self) -> int:
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """The keys of a dict, as the tracer has them."""
        return self.tracer.keys(self)

    def __len__(self) -> NoReturn:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    def __contains__(self, item: Any) -> NoReturn:
        raise TraceError(
            f"whether something is in a Proxy ({_where()}) is not known while the program is traced"
        )

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Any:
        """A node for a call of `orig_method`, which has met a proxy among its arguments."""
        from ...compat.overrides import is_tensor_method_or_property

        args, kwargs = args or (), kwargs or {}
        tracer = find_proxy(args, kwargs).tracer
        if is_tensor_method_or_property(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=orig_method.__name__)


def find_proxy(*values: Any) -> Any:
    """The first proxy in nested data; None if there is none."""
    found: list[Any] = []
    map_aggregate(values, lambda x: found.append(x) if isinstance(x, Proxy) else None)
    return found[0] if found else None


class Attribute(Proxy):
    """An attribute of what another proxy stands for; a node of its own only where it is not called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        """The node that reads it."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter, whose shape the program may ask for."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Tensor) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """Its size."""
        return self.param.shape

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return self.param.ndim

    def size(self, dim: int | None = None) -> Any:
        """See `Tensor.size`."""
        return self.param.size() if dim is None else self.param.size(dim)

    def dim(self) -> int:
        """See `Tensor.dim`."""
        return self.param.dim()

    def numel(self) -> int:
        """See `Tensor.numel`."""
        return self.param.numel()

    nelement = numel


def _noted(function: Callable[..., Any], swapped: bool = False) -> Callable[..., Proxy]:
    def note(self: Proxy, *others: Any) -> Proxy:
        args = (*others, self) if swapped else (self, *others)
        return self.tracer.create_proxy("call_function", function, args, {})

    return note


for _name in (*BINARY, *UNARY):
    _function = getattr(operator, _name)
    _bare = _name.strip("_")
    setattr(Proxy, f"__{_bare}__", _noted(_function))
    if _name in BINARY and _name not in ("eq", "ne", "lt", "gt", "le", "ge"):
        setattr(Proxy, f"__r{_bare}__", _noted(_function, swapped=True))
