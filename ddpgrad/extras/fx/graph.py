"""A graph: the calls that a function makes, in their order."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ...nn import Module
from .codegen import Namespace, PythonCode, python_code
from .node import Argument, Node, Target, map_arg


class _NodeList:
    """The nodes of a graph, from the first or, reversed, from the last. Nodes may come and go meanwhile."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self._graph, self._direction = graph, direction

    def __len__(self) -> int:
        return self._graph._len

    def __iter__(self) -> Iterator[Node]:
        node = getattr(self._graph._root, self._direction)
        while node is not self._graph._root:
            if not node._erased:
                yield node
            node = getattr(node, self._direction)

    def __reversed__(self) -> Iterator[Node]:
        return iter(_NodeList(self._graph, "_prev" if self._direction == "_next" else "_next"))


class _InsertPoint(AbstractContextManager[Any]):
    """A block within which new nodes get a place; without a block, from now on."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self._graph, self._before = graph, graph._insert
        graph._insert = insert

    def __exit__(self, *exc: object) -> None:
        self._graph._insert = self._before


class Graph:
    """The calls of a function as nodes, from its arguments (placeholders) to what it returns (output).

    Source: https://pytorch.org/docs/stable/fx.html#torch.fx.Graph
    """

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: type | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._len = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._names = Namespace()
        self.owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras

    # -- its nodes -------------------------------------------------------------------------------

    @property
    def nodes(self) -> _NodeList:
        """All nodes in order."""
        return _NodeList(self)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes with this `op` and, where one is given, this `target`, in order."""
        return [node for node in self.nodes if node.op == op and target in (None, node.target)]

    def output_node(self) -> Node:
        """The node that returns."""
        node = next(iter(reversed(self.nodes)), None)
        if node is None or node.op != "output":
            raise AssertionError("the graph has no output")
        return node

    # -- new nodes ---------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A new node at the place of the moment, which is the end unless `inserting_before` or `_after` says another.

        The arguments may hold nodes of this graph.
        """
        for user in (args or (), kwargs or {}):
            map_arg(user, self._check_mine)
        node = Node(
            self,
            self._names.create_name(name or _word(target)),
            op,
            target,
            args or (),
            kwargs or {},
            type_expr,
        )
        self._insert(node)
        self._len += 1
        return node

    def _check_mine(self, node: Node) -> None:
        if node.graph is not self:
            raise RuntimeError(f"node {node} is of another graph: copy it with node_copy")

    def placeholder(
        self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty
    ) -> Node:
        """An argument of the function."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module, by its path."""
        self._warn_of_missing(qualified_name, "get_attr")
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a module below the module, by its path."""
        self._warn_of_missing(module_name, "call_module")
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """The end: `result` is returned."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def _warn_of_missing(self, path: str, op: str) -> None:
        if self.owning_module is not None and not has_attr(self.owning_module, path):
            warnings.warn(
                f"{op} of {path!r}, which the module that owns the graph does not have: add it before the graph runs",
                stacklevel=3,
            )

    # -- changes -----------------------------------------------------------------------------------

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Put new nodes before `n`, or at the beginning: within a `with` block, or from now on."""
        return self.inserting_after(self._root) if n is None else _InsertPoint(self, self._checked(n).prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Put each new node right behind `n`, or at the end: within a `with` block, or from now on."""
        return self.inserting_before(self._root) if n is None else _InsertPoint(self, self._checked(n).append)

    def _checked(self, node: Node) -> Node:
        if node.graph is not self:
            raise AssertionError("Node to insert before or after is not in graph.")
        return node

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nothing uses."""
        self._check_mine(to_erase)
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!"
            )
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        to_erase._leave_list()
        to_erase._erased = True
        to_erase.args, to_erase.kwargs = (), {}
        self._len -= 1

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove the nodes that nothing uses and that do nothing but to return a value; whether there were some."""
        self.lint()
        impure = is_impure_node or Node.is_impure
        before = self._len
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
        return self._len < before

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """A new node like one of another graph. arg_transform: from a node among its arguments to what is to be there."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta.update(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copy the nodes of `g` here; what its output returns, in nodes of this graph. val_map: old nodes to new ones."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        copied = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        values: dict[Node, Node] = {}
        found = copied.graph_copy(self, values, return_output_node=True)
        if found is not None:
            result, old = found
            copied.output(result, type_expr=old.type).meta.update(old.meta)
        if memo is not None:
            memo.update({id(old): new for old, new in values.items()})
        return copied

    # -- what it says --------------------------------------------------------------------------------

    def lint(self) -> None:
        """RuntimeError if a node uses one that comes later, names or places are given twice, or a target is missing."""
        names: set[str] = set()
        known: set[Node] = set()
        for node in self.nodes:
            for user in node.all_input_nodes:
                if user.graph is not self or user not in known:
                    raise RuntimeError(
                        f"Argument '{user}' of Node '{node}' was used before it has been defined! {self}"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            if (
                self.owning_module is not None
                and node.op in ("get_attr", "call_module")
                and not has_attr(self.owning_module, str(node.target))
            ):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute of {type(self.owning_module).__name__}"
                )
            names.add(node.name)
            known.add(node)

    def python_code(self, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
        """Source of a function that makes the calls of the graph; root_module: the name of its first argument."""
        return python_code(self, root_module)

    def print_tabular(self) -> None:
        """Print a line for each node."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(dict(n.kwargs))) for n in self.nodes]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *(node.format_node() for node in self.nodes)])


def _word(target: Target) -> str:
    """A name for what `target` returns."""
    text = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    text = text.strip("_") if text.startswith("__") and text.endswith("__") else text
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in text)
    return snake.lstrip("_") if text[:1].isupper() else snake


def has_attr(module: Module, path: str) -> bool:
    """Whether there is something at that path below `module`."""
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
