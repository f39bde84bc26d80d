"""Nodes of a graph: one call each, with its arguments, which may be other nodes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ...compat.checks import _assert

if TYPE_CHECKING:
    from .graph import Graph

Target = Callable[..., Any] | str
Argument = Any
"""A node, plain data, or tuples, lists, dicts and slices of them."""

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output", "root")
_EFFECTS: set[Any] = {_assert, operator.setitem, operator.delitem, print}
"""Functions that are called for what they do, and not for what they return."""


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function whose calls stay in a graph although nothing uses their results."""
    _EFFECTS.add(fn)
    return fn


def _fixed(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"'{type(self).__name__}' object does not support mutation: assign new arguments, node.args = new_args, so that "
        "the graph knows who uses what"
    )


class immutable_list(list[Any]):
    """A list among the arguments of a node."""

    append = clear = extend = insert = pop = remove = reverse = sort = _fixed
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _fixed
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return immutable_list, (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dict among the arguments of a node."""

    clear = pop = popitem = setdefault = update = _fixed
    __delitem__ = __ior__ = __setitem__ = _fixed

    def __reduce__(self) -> Any:
        return immutable_dict, (tuple(self.items()),)


def map_aggregate(
    a: Argument, fn: Callable[[Any], Any], check_key: Callable[[Any], None] | None = None
) -> Any:
    """`a` with `fn` applied to all that is no tuple, list, dict or slice. check_key: called with each key of a dict."""
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn, check_key) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list(map_aggregate(part, fn, check_key) for part in a)
    if isinstance(a, dict):
        if check_key is not None:
            for key in a:
                check_key(key)
        return immutable_dict((key, map_aggregate(value, fn, check_key)) for key, value in a.items())
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn, check_key) for part in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Any]) -> Any:
    """`a` with `fn` applied to each node in it."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


@functools.total_ordering
class Node:
    """A call in a `graph`. Nodes of one graph are ordered as they are called.

    op          placeholder, get_attr, call_function, call_method, call_module or output
    target      what is called: a function, or the name of an argument, attribute, method or module
    users       the nodes that have this one among their arguments, as the keys of a dict
    meta        for notes of passes

    Source: https://pytorch.org/docs/stable/fx.html#torch.fx.Node
    """

    def __lt__(self, other: Node) -> bool:
        first = next(node for node in self.graph.nodes if node is self or node is other)
        return first is self and self is not other

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: Mapping[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"op of node {name!r} must be one of {', '.join(OPS[:-1])}, got {op!r}")
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target).__name__} but a "
                    "Callable is expected"
                )
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target).__name__} but a str is "
                "expected"
            )
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev: Node = self
        self._next: Node = self
        self._erased = False
        self._args: tuple[Argument, ...] = ()
        self._kwargs: Mapping[str, Argument] = {}
        self._take(args, kwargs)

    def _rename(self, candidate: str) -> None:
        """Have a name as near to `candidate` as the others in the graph allow."""
        if candidate != self.name:
            self.name = self.graph._names.create_name(candidate)

    # -- its place -----------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The node after it."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before it."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x`, of the same graph, before this node."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._leave_list()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Move `x`, of the same graph, behind this node."""
        self._next.prepend(x)

    def _leave_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # -- its arguments ---------------------------------------------------------------------------

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments. Assign others to change them."""
        return self._args

    @args.setter
    def args(self, args: tuple[Argument, ...]) -> None:
        self._take(args, self._kwargs)

    @property
    def kwargs(self) -> Mapping[str, Argument]:
        """The arguments by name. Assign others to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: Mapping[str, Argument]) -> None:
        self._take(self._args, kwargs)

    def _take(self, args: Iterable[Argument], kwargs: Mapping[str, Argument]) -> None:
        for used in self._input_nodes:
            used.users.pop(self, None)
        self._input_nodes = {}

        def use(node: Node) -> Node:
            self._input_nodes[node] = None
            node.users[self] = None
            return node

        self._args, self._kwargs = map_arg(tuple(args), use), map_arg(dict(kwargs), use)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among its arguments, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace a positional argument."""
        self.args = (*self.args[:idx], arg, *self.args[idx + 1 :])

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put a positional argument before another."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Set an argument by name."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node in the place of one among the arguments."""
        both = map_arg((self.args, self.kwargs), lambda n: new_input if n is old_input else n)
        self._take(*both)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Have all users, but for those of which `delete_user_cb` is False, use `replace_with`; returns them."""
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # -- what it is ------------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """Where the program made the call, if the tracer noted it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it does more than to return a value, so that it stays where nothing uses that."""
        if self.op in ("placeholder", "output"):
            return True
        name = self.target if isinstance(self.target, str) else getattr(self.target, "__name__", "")
        if self.op == "call_function":
            return self.target in _EFFECTS or _in_place(name)
        if self.op == "call_method":
            return _in_place(name)
        if self.op == "call_module" and self.graph.owning_module is not None:
            return getattr(self.graph.owning_module.get_submodule(name), "_is_impure", False)
        return False

    def format_node(self) -> str:
        """A line about it."""
        if self.op == "output":
            return f"return {self.args[0]}"
        kind = _full_name(self.type) if isinstance(self.type, type) else repr(self.type)
        typed = "" if self.type is None else f"{kind} "
        target = self.target if isinstance(self.target, str) else _full_name(self.target)
        default = f"(default={self.args[0]})" if self.op == "placeholder" and self.args else ""
        given = (
            f"(args = {_written(self.args)}, kwargs = {_written(self.kwargs)})"
            if self.op.startswith("call")
            else default
        )
        return f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}[target={target}]{given}"

    def __repr__(self) -> str:
        return self.name


def _in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _full_name(function: Callable[..., Any]) -> str:
    from .codegen import qualified_name

    name = qualified_name(function)
    return name if "." in name else f"builtins.{name}"


def _written(a: Argument) -> str:
    """Arguments as a line about a node has them."""
    if isinstance(a, Node):
        return f"%{a.name}"
    if isinstance(a, tuple):
        return f"({', '.join(map(_written, a))}{',' * (len(a) == 1)})"
    if isinstance(a, list):
        return f"[{', '.join(map(_written, a))}]"
    if isinstance(a, dict):
        return f"{{{', '.join(f'{key}: {_written(value)}' for key, value in a.items())}}}"
    return str(a)
