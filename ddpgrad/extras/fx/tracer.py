"""Tracers: run a function with proxies for its arguments, and note the calls that it makes."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

from ...compat.checks import _assert
from ...compat.jit import ScriptModule as ScriptObject  # noqa: F401 - what libraries ask of attributes
from ...core.overrides import overriding
from ...core.tensor import Tensor
from ...nn import Module, Parameter, Sequential
from .graph import Graph
from .graph_module import GraphModule
from .node import Argument
from .patching import (
    _autowrap_check,
    _orig_module_call,
    _orig_module_getattr,
    _patch_wrapped_functions,
    _Patcher,
    _wrapped_fns_to_patch,
    is_fx_tracing,
)
from .proxy import (
    ParameterProxy,
    Proxy,  # noqa: F401 - which libraries look for here
    Scope,
    TracerBase,
)

_PACKAGE = __name__.partition(".")[0]
_LAYERS = ("torch.nn.", "torch.ao.nn.", f"{_PACKAGE}.nn.")


class PHBase:
    """Of `concrete_args`: stands for an argument that is to be a placeholder."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class Tracer(TracerBase):
    """Makes a `Graph` of a module or function.

    autowrap_modules    calls of functions of these modules become nodes, where the globals of what is traced have the names
    autowrap_functions  calls of these, likewise
    param_shapes_constant  shapes of parameters are numbers, not nodes

    A subclass says by `is_leaf_module` which modules become one call.
    Source: https://pytorch.org/docs/stable/fx.html#torch.fx.Tracer
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        functions = [
            f for m in autowrap_modules for name, f in vars(m).items() if name[0] != "_" and callable(f)
        ]
        self._autowrap_function_ids = {id(f) for f in (*functions, *autowrap_functions)}
        self._autowrap_search = list(autowrap_modules)
        self.tensor_attrs: dict[Tensor, str] = {}
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root: Module = Module()
        self.scope = Scope("", None)
        self.module_stack = {}
        self.traced_func_name = "forward"

    # -- what a subclass may change ------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of `m` is one node. Those of torch.nn are, but for Sequential."""
        return f"{m.__module__}.".startswith(_LAYERS) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Where `mod` is below the root; NameError if it is not."""
        known = self.submodule_paths
        path = _path_of(mod, self.root.named_modules()) if known is None else known.get(mod)
        if path is None:
            raise NameError(
                f"module {type(mod).__name__} is not installed as a submodule of {type(self.root).__name__}"
            )
        return path

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of the module `m`: one node for a leaf, else what `forward` does."""
        path = self.path_of_module(m)
        before, self.scope = self.scope, Scope(path, type(m))
        self.module_stack[path] = (path, type(m))
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.scope = before
            self.module_stack.pop(path, None)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What a module's attribute `attr` is while the program is traced: a proxy for a parameter."""
        if isinstance(attr_val, Parameter):
            return self._proxy_of(attr_val, self.root.named_parameters(), parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            return self._proxy_of(attr_val, self.root.named_buffers(), parameter_proxy_cache)
        return attr_val

    def _proxy_of(self, value: Tensor, members: Iterable[tuple[str, Any]], known: dict[str, Any]) -> Any:
        path = _path_of(value, members)
        if path is None:
            return value
        if path not in known:
            constant = isinstance(value, Parameter) and self.param_shapes_constant
            # A subclass may have a create_proxy without the last argument.
            more: Any = (
                {"proxy_factory_fn": lambda node: ParameterProxy(self, node, path, value)} if constant else {}
            )
            known[path] = self.create_proxy("get_attr", path, (), {}, **more)
        return known[path]

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """`root_fn` with the proxies for its arguments."""
        function: Any = inspect.unwrap(root_fn)
        code = function.__code__
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        defaults = {n: p.default for n, p in inspect.signature(function).parameters.items()}
        args: list[Any] = [self.root] if is_module else []
        if is_module and not names:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        by_name: dict[str, Any] = {}
        kinds = _annotations(function)
        for i, name in enumerate(names[is_module:], is_module):
            default = defaults.get(name, inspect.Signature.empty)
            value = self._argument(name, default, concrete_args or {}, kinds.get(name))
            if i < code.co_argcount:
                args.append(value)
            else:
                by_name[name] = value
        rest = list(code.co_varnames[len(names) :])
        if code.co_flags & inspect.CO_VARARGS:
            args.append(self._argument(f"*{rest.pop(0)}", inspect.Signature.empty, {}))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            by_name[rest[0]] = self._argument(f"**{rest[0]}", inspect.Signature.empty, {})
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            # The function is called with the proxies for all of *args and **kwargs, not with their items.
            function = _plain_arguments(function)
            return function, [*args, *by_name.values()]
        if not by_name:
            return root_fn, args
        return functools.wraps(root_fn)(functools.partial(root_fn, **by_name)), args

    def _argument(self, name: str, default: Any, concrete: dict[str, Any], kind: Any = None) -> Any:
        value = concrete.get(name, PH)
        default = default if isinstance(value, (PHBase, dict, list, tuple)) else value
        args = () if default is inspect.Signature.empty else (default,)
        proxy = self.create_proxy("placeholder", name, args, {}, type_expr=kind)
        return self._given(proxy, value, name)

    def _given(self, proxy: Any, value: Any, name: str) -> Any:
        """What the function gets where it is given `value`: `proxy` for PH, and a dict, list or tuple of what these give."""
        if isinstance(value, PHBase):
            return proxy
        if isinstance(value, dict):
            return type(value)(
                {key: self._given(proxy[key], part, f"{name}[{key!r}]") for key, part in value.items()}
            )
        if isinstance(value, (list, tuple)):
            parts = [self._given(proxy[i], part, f"{name}[{i}]") for i, part in enumerate(value)]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        said = f"{name} has been specialized to have value {value} but got another value"
        self.create_proxy("call_function", _assert, (proxy == value, said), {})
        return value

    # -- tracing ---------------------------------------------------------------------------------------

    def _one_arg(self, a: Any) -> Argument:
        if isinstance(a, Parameter):
            path = _path_of(a, self.root.named_parameters())
            if path is None:
                raise NameError("parameter is not a member of this module")
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, Tensor):
            path = _path_of(a, self.root.named_buffers()) or self.tensor_attrs.get(a)
            if path is None:
                number = 0
                while hasattr(self.root, path := f"_tensor_constant{number}"):
                    number += 1
                self.tensor_attrs[a] = path
                setattr(self.root, path, a)
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super()._one_arg(a)

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module's forward, or of a function."""
        global _tracing
        if isinstance(root, Module):
            self.root, fn = root, getattr(type(root), self.traced_func_name)
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, fn = Module(), root
        self.graph = Graph(tracer_cls=type(self) if "<locals>" not in type(self).__qualname__ else None)
        self.tensor_attrs = {
            value: f"{path}.{name}".lstrip(".")
            for path, module in self.root.named_modules()
            for name, value in vars(module).items()
            if isinstance(value, Tensor) and not isinstance(value, Parameter)
        }
        scope = getattr(inspect.unwrap(fn), "__globals__", {})
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        known: dict[str, Any] = {}
        thread = threading.get_ident()  # others, such as those of a loader, go on meanwhile

        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return _orig_module_call(module, *args, **kwargs)
            _autowrap_check(patcher, getattr(module.forward, "__globals__", {}), self._autowrap_function_ids)
            return self.call_module(module, functools.partial(_orig_module_call, module), args, kwargs)

        def read(module: Module, name: str) -> Any:
            value = _orig_module_getattr(module, name)
            return self.getattr(name, value, known) if threading.get_ident() == thread else value

        with _Patcher() as patcher:
            patcher.patch_method(Module, "__call__", call)
            patcher.patch_method(Module, "__getattr__", read)
            _patch_wrapped_functions(patcher)
            for names in (scope, *map(vars, self._autowrap_search)):
                _autowrap_check(patcher, names, self._autowrap_function_ids)
            overriding.append(self)  # so that all functions ask first, and a proxy is found in any place
            try:
                result = self.create_arg(fn(*args))
            finally:
                overriding.remove(self)
            returned = _annotations(inspect.unwrap(fn)).get("return")
            self.create_node("output", "output", (result,), {}, type_expr=returned)
        self.submodule_paths = None
        return self.graph


def _annotations(function: Any) -> dict[str, Any]:
    """The types that a function says its arguments and its result have; those of this package are written as text."""
    said = getattr(function, "__annotations__", {})
    if (getattr(function, "__module__", None) or "").partition(".")[0] != __name__.partition(".")[0]:
        return said
    return {name: Tensor if kind == "Tensor" else kind for name, kind in said.items()}


def _path_of(value: Tensor | Module, members: Iterable[tuple[str, Any]]) -> str | None:
    return next((name for name, member in members if member is value), None)


def _plain_arguments(function: Any) -> Any:
    """`function`, called with what its *args and **kwargs are to be, one value each."""
    code = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    more = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    if code.co_kwonlyargcount:
        raise RuntimeError(
            f"{function.__qualname__} has arguments by name only beside *args or **kwargs: they cannot be traced"
        )
    plain = code.replace(co_flags=flags, co_argcount=code.co_argcount + more)
    return FunctionType(
        plain, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Have calls of a function of this module, or of a builtin by its name, be single nodes. At the top of a module only."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame: Any = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """A module that makes the calls which `root` makes for any arguments.

    Loops and branches are those that were taken; TraceError where they depend on the arguments.
    concrete_args: arguments that are given now, by name: numbers, strings, None.
    Source: https://pytorch.org/docs/stable/fx.html#torch.fx.symbolic_trace
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)


def compatibility(is_backward_compatible: bool) -> Callable[[Any], Any]:
    """A decorator that libraries put on methods of their tracers; it says what PyTorch promises of them."""
    return lambda function: function


is_fx_symbolic_tracing = is_fx_tracing
