"""Python source for a graph."""

from __future__ import annotations

import builtins
import enum
import keyword
import math
import operator
import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ...backend.device import Device
from ...backend.dtype import DType
from ...core.size import Layout
from .node import Node

if TYPE_CHECKING:
    from .graph import Graph

_PACKAGE = __name__.partition(".")[0]

BINARY = {
    "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "add": "+", "sub": "-", "mul": "*",
    "floordiv": "//", "truediv": "/", "mod": "%", "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^",
    "pow": "**", "matmul": "@",
}  # fmt: skip
UNARY = {"pos": "+", "neg": "-", "invert": "~"}
_INDEX = {"getitem": "{}[{}]"}
FORMATS = {
    **{name: f"{{}} {sign} {{}}" for name, sign in BINARY.items()},
    **{name: f"{sign}{{}}" for name, sign in UNARY.items()},
    **_INDEX,
}
"""Functions of the module operator, and how Python writes them."""
_IN_PLACE = {
    f"i{name.strip('_')}": sign
    for name, sign in BINARY.items()
    if name not in ("eq", "ne", "lt", "gt", "le", "ge")
}
# Where programs find functions of this package, in the order of their rank.
_HOMES = ("", "nn.functional", "linalg", "special", "fft", "nn.init")


class PythonCode(NamedTuple):
    """The source of a function `forward`, and what its names stand for."""

    src: str
    globals: dict[str, Any]


class Namespace:
    """Names that are taken; the next has a number where it would be one of them."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """A name as near to `candidate` as Python and the others allow."""
        name = re.sub(r"\W+", "_", candidate) or "_unnamed"
        name = f"_{name}" if name[0].isdigit() else name
        base, number = name, 0
        if found := re.fullmatch(r"(.*)_(\d+)", name):
            base, number = found[1], int(found[2])
        while (
            name in self._taken
            or keyword.iskeyword(name)
            or hasattr(builtins, name)
            or name in ("inf", "nan")
        ):
            number = max(number + 1, self._next.get(base, 0))
            name = f"{base}_{number}"
            self._next[base] = number + 1
        self._taken.add(name)
        return name


def qualified_name(function: Callable[..., Any]) -> str:
    """The name by which a program finds a function: `torch.relu`, `operator.add`, `math.sqrt`, `len`."""
    name = getattr(function, "__name__", type(function).__name__)
    if getattr(builtins, name, None) is function:
        return name
    if getattr(operator, name, None) is function:
        return f"operator.{name}"
    module = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] == _PACKAGE:
        for home in _HOMES:
            place = import_module(f"{_PACKAGE}.{home}".rstrip("."))
            if getattr(place, name, None) is function:
                return f"torch.{home}.{name}".replace("..", ".")
        return f"torch{module[len(_PACKAGE) :]}.{name}"
    return f"{module}.{name}"


def python_code(graph: Graph, root_module: str = "self") -> PythonCode:
    """The function that does what `graph` says; root_module: what it calls the object that has the modules."""
    writer, last = _Writer(root_module), last_uses(graph)
    for node in graph.nodes:
        writer.write(node)
        gone = [*last.get(node, ()), *(() if node.users else (node,))]
        if gone and node.op not in ("output", "placeholder"):
            writer.body[-1] += f";  {' = '.join(each.name for each in gone)} = None"
    body = "\n".join(f"    {line}" for line in writer.body or ["pass"])
    head = f"def forward({', '.join([root_module, *writer.parameters])}){writer.returned}:"
    return PythonCode(f"\n\n\n{head}\n{body}\n    ", writer.globals)


def last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """By node, those that no later one uses."""
    last: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        last[node] = [used for used in node.all_input_nodes if used not in seen]
        seen.update(last[node])
    return last


class _Writer:
    """Writes one line for each node."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.body: list[str] = []
        self.parameters: list[str] = []
        self.returned = ""
        self.globals: dict[str, Any] = {}

    def write(self, node: Node) -> None:
        """Add the lines of `node`."""
        target: Any = node.target
        typed = self._annotation(node.type)
        if node.op == "placeholder":
            default = f" = {self.spelt(node.args[0])}" if node.args else ""
            self.parameters.append(f"{target}{typed}{default}")
            if target.lstrip("*") != node.name:
                self.body.append(f"{node.name} = {target.lstrip('*')}")
        elif node.op == "output":
            self.returned = typed.replace(" : ", " -> ", 1)
            self.body.append(f"return {self.spelt(node.args[0])}")
        elif node.op == "get_attr":
            self.body.append(f"{node.name}{typed} = {attribute(self.root, target)}")
        elif node.op == "call_module":
            self.body.append(
                f"{node.name}{typed} = {attribute(self.root, target)}({self._arguments(node.args, node.kwargs)})"
            )
        elif node.op == "call_method":
            method = attribute(self.spelt(node.args[0]), target)
            self.body.append(f"{node.name}{typed} = {method}({self._arguments(node.args[1:], node.kwargs)})")
        else:
            self._function(node, target, typed)

    def _function(self, node: Node, target: Any, typed: str) -> None:
        name = getattr(target, "__name__", "")
        mine = getattr(operator, name, None) is target and not node.kwargs
        if mine and name in FORMATS:
            self.body.append(f"{node.name}{typed} = {FORMATS[name].format(*self._operands(node.args, name))}")
        elif mine and name in _IN_PLACE:
            left, right = map(self.spelt, node.args)
            self.body.append(f"{left} {_IN_PLACE[name]}= {right};  {node.name}{typed} = {left}")
        elif (
            target is getattr
            and isinstance(node.args[1], str)
            and node.args[1].isidentifier()
            and len(node.args) == 2
        ):
            self.body.append(f"{node.name}{typed} = {self.spelt(node.args[0])}.{node.args[1]}")
        else:
            called = self.known(qualified_name(target), target)
            self.body.append(f"{node.name}{typed} = {called}({self._arguments(node.args, node.kwargs)})")

    def _operands(self, args: Any, name: str) -> list[str]:
        # A number binds weaker than ** and an attribute do.
        return [
            f"({text})" if text.startswith("-") and name == "pow" else text for text in map(self.spelt, args)
        ]

    def _arguments(self, args: Any, kwargs: Any) -> str:
        named = [f"{key} = {self.spelt(value)}" for key, value in kwargs.items()]
        return ", ".join([*map(self.spelt, args), *named])

    def _annotation(self, kind: Any) -> str:
        if kind is None:
            return ""
        return f" : {self.spelt(kind)}" if isinstance(kind, type) else ""

    def known(self, hint: str, obj: Any) -> str:
        """The name by which the source refers to `obj`."""
        if hint.partition(".")[0] == "torch":
            root = import_module(_PACKAGE)
            found: Any = root
            for part in hint.split(".")[1:]:
                found = getattr(found, part, None)
            if found is obj:
                self.globals["torch"] = root
                return hint
        elif getattr(builtins, hint, None) is obj:
            return hint
        name, number = hint.replace(".", "_").replace("<", "").replace(">", ""), 0
        wanted = name
        while self.globals.get(name, obj) is not obj:
            number += 1
            name = f"{wanted}_{number}"
        self.globals[name] = obj
        return name

    def spelt(self, value: Any) -> str:
        """`value`, which may hold nodes, as Python writes it."""
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple):
            parts = ", ".join(map(self.spelt, value))
            if hasattr(value, "_fields"):
                return f"{self.known(type(value).__qualname__, type(value))}({parts})"
            if type(value) is not tuple:
                return f"{self.known(qualified_name(type(value)), type(value))}([{parts}])"
            return f"({parts},)" if len(value) == 1 else f"({parts})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.spelt, value))}]"
        if isinstance(value, dict):
            return (
                "{" + ", ".join(f"{self.spelt(key)}: {self.spelt(each)}" for key, each in value.items()) + "}"
            )
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.spelt, (value.start, value.stop, value.step)))})"
        if isinstance(value, (DType, Layout)):
            return self.known(str(value), value)
        if isinstance(value, Device):
            return f"{self.known('torch.device', import_module(_PACKAGE).device)}({str(value)!r})"
        if isinstance(value, enum.Enum):
            return f"{self.known(type(value).__qualname__, type(value))}.{value.name}"
        if isinstance(value, float) and not math.isfinite(value):
            return (
                self.known("nan", math.nan)
                if value != value
                else f"{'-' * (value < 0)}{self.known('inf', math.inf)}"
            )
        if value is Ellipsis:
            return "Ellipsis"
        if isinstance(value, type) or callable(value):
            return self.known(qualified_name(value), value)
        text = repr(value)
        return text if _is_plain(value) else self.known(f"_{type(value).__name__}", value)


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, complex, str, bytes, range)


def attribute(base: str, target: str) -> str:
    """`base.a.b`; parts that are no names, as the numbers of modules in a list, are read by getattr."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base
