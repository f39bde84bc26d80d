"""A module whose forward is a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
from collections.abc import Mapping
from typing import Any

from ...core.tensor import Tensor
from ...nn import Module, Parameter
from .codegen import PythonCode
from .graph import Graph, has_attr
from .node import map_aggregate, map_arg

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_count = itertools.count()


class _CodeOnlyModule(Module):
    """A module with the members of another, and another class."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


class GraphModule(Module):
    """Makes the calls of `graph`, with the parameters and modules of `root` that they name.

    `code` is the source of its forward, which is compiled anew where a graph is assigned, and by `recompile()` after
    the graph was changed. Each instance has a class of its own.
    root: a module, or a dict of modules and tensors by the paths that the graph names.
    Source: https://pytorch.org/docs/stable/fx.html#torch.fx.GraphModule
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        above = _class_of_all(cls)
        names = {
            "__module__": above.__module__,
            "__qualname__": "GraphModule.__new__.<locals>.GraphModuleImpl",
        }
        own = type(above.__name__, (above,), {"_of_one_graph": True, **names})  # by which accelerate knows it
        return Module.__new__(own)

    def __init__(
        self, root: Module | Mapping[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        named = [str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = getattr(root, "training", True)
            for path in named:
                _copy_attr(root, self, path)
        elif isinstance(root, Mapping):
            for path in named:
                if path not in root:
                    raise RuntimeError(
                        f"Node target {path} is referenced in the graph, and not provided in ``root``"
                    )
            for path in sorted(dict.fromkeys(named), key=lambda path: path.count(".")):
                _assign_attr(root[path], self, path)
        else:
            raise RuntimeError(f"Unsupported type {type(root)} passed for root!")
        self.graph = graph
        self._tracer_cls = graph._tracer_cls
        self.meta: dict[str, Any] = dict(getattr(root, "meta", {}))

    # -- the graph -----------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """What forward does."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of forward."""
        return self._code

    def recompile(self) -> PythonCode:
        """Make forward anew of the graph."""
        made = self._graph.python_code("self")
        self._code = made.src
        kind: Any = type(self)
        kind.forward = _compiled(made)
        return made

    def print_readable(self, print_output: bool = True, **_: Any) -> str:
        """The source as a class, here and for the graphs of modules below."""
        body = self._code.strip("\n").replace("\n", "\n    ")
        text = f"class {type(self).__name__}(torch.nn.Module):\n    {body}\n"
        for child in self.children():
            if isinstance(child, GraphModule):
                inner = child.print_readable(print_output=False).rstrip("\n").replace("\n", "\n    ")
                text += f"\n    {inner}\n"
        if print_output:
            print(text)
        return text

    # -- the modules below ---------------------------------------------------------------------------

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add `m` at a path, with plain modules on the way; whether that was possible."""
        above, last = _place(self, target)
        if above is None:
            return False
        above.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a path; whether there was one."""
        way, _, last = target.rpartition(".")
        if not has_attr(self, target):
            return False
        above = self.get_submodule(way)
        if not isinstance(getattr(above, last), Module):
            return False
        delattr(above, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that no node needs."""
        needed: set[str] = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                needed.update(".".join(parts[: i + 1]) for i in range(len(parts)))
                if node.op == "call_module":
                    below = self.get_submodule(str(node.target)).named_modules(prefix=str(node.target))
                    needed.update(name for name, _ in below)
        for name in [name for name, _ in self.named_modules() if name and name not in needed]:
            self.delete_submodule(name)

    # -- copies --------------------------------------------------------------------------------------

    def _without_graph(self) -> dict[str, Any]:
        return {k: value for k, value in self.__getstate__().items() if k not in ("_graph", "_code")}

    def _like(self, members: dict[str, Any], graph: Graph) -> Any:
        return _made(type(self), type(self).__name__, members, graph)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        members = copy.deepcopy(self._without_graph(), memo)
        memo[id(self)] = made = self._like(members, copy.deepcopy(self._graph, memo))
        return made

    def __copy__(self) -> Any:
        return self._like(vars(Module.__copy__(self)), copy.deepcopy(self._graph))

    def __reduce__(self) -> Any:
        places = {node: i for i, node in enumerate(self._graph.nodes)}
        rows = [
            (n.op, n.target, *map_arg((n.args, n.kwargs), lambda used: _Number(places[used])), n.name, n.type)
            for n in self._graph.nodes
        ]
        return _rebuilt, (_class_of_all(type(self)), type(self).__name__, self._without_graph(), rows)

    def __str__(self) -> str:
        reminder = "To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__repr__(), self._code, "# " + reminder])


def _class_of_all(cls: Any) -> Any:
    """The class below which each instance has one of its own."""
    return next(each for each in cls.__mro__ if "_of_one_graph" not in each.__dict__)


def _made(kind: Any, name: str, members: dict[str, Any], graph: Graph) -> Any:
    """A GraphModule, or one of a subclass, with these members, whose class has this name."""
    made = kind.__new__(kind)
    type(made).__name__ = name
    made.__setstate__(members)
    made.graph = graph
    return made


class _Number(int):
    """Stands for a node in a pickle."""


def _rebuilt(kind: Any, name: str, members: dict[str, Any], rows: list[Any]) -> Any:
    graph, nodes = Graph(), []
    for op, target, args, kwargs, named, typed in rows:
        args, kwargs = map_aggregate((args, kwargs), lambda a: nodes[a] if isinstance(a, _Number) else a)
        nodes.append(graph.create_node(op, target, args, kwargs, named, typed))
    return _made(kind, name, members, graph)


def _compiled(code: PythonCode) -> Any:
    """The function `forward` of a source, whose lines tracebacks show."""
    file = f"<graph {next(_count)}>"
    linecache.cache[file] = (len(code.src), None, code.src.splitlines(keepends=True), file)
    names = dict(code.globals)
    exec(compile(code.src, file, "exec"), names)
    return names["forward"]


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give `to_module` what `from_module` has at a path."""
    found = _get_attr(from_module, target)
    if not has_attr(to_module, target) or not isinstance(found, Module):
        _assign_attr(found, to_module, target)


def _place(module: Module, target: str) -> tuple[Any, str]:
    """The module that is to have what is at a path below `module`, made on the way, or None; and under which name."""
    *way, last = target.split(".")
    at: Any = module
    for part in way:
        if not hasattr(at, part):
            setattr(at, part, Module())
        at = getattr(at, part)
        if not isinstance(at, Module):
            return None, last
    return at, last


def _assign_attr(from_obj: Any, to_module: Module, target: str) -> None:
    """Put `from_obj` at a path below `to_module`, a tensor as a buffer."""
    at, last = _place(to_module, target)
    if isinstance(from_obj, Tensor) and not isinstance(from_obj, Parameter):
        at.register_buffer(last, from_obj)
    else:
        setattr(at, last, from_obj)


def _get_attr(model: Module, attr_name: str) -> Any:
    """What is at a path below `model`."""
    found: Any = model
    for part in attr_name.split("."):
        found = getattr(found, part)
    return found


def _del_attr(model: Module, attr_name: str) -> None:
    """Remove what is at a path below `model`."""
    way, _, last = attr_name.rpartition(".")
    delattr(_get_attr(model, way) if way else model, last)


_has_attr = has_attr
