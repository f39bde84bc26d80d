"""Writes `tensor.pyi`, from which type checkers and editors know Tensor's methods, which are attached when ops load.

    python -m ddpgrad.core.stub

is to be run when a method was added or its signature changed; `tests/test_faces.py` says so when it was not.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_overloads

from . import tensor
from .tensor import Tensor
from .upcalls import declare_all_ops

ROOT = tensor.__name__.partition(".")[0]
HEAD = '"""The types of `tensor.py`, written by `python -m ddpgrad.core.stub`."""\n'
PATH = Path(__file__).with_name("tensor.pyi")


def text() -> str:
    """The stub of `tensor.py`: what it has itself, and the class Tensor with all of its methods."""
    declare_all_ops()
    stub = _Stub()
    body: list[str] = []
    for node in _tree(tensor.__name__).body:
        if isinstance(node, ast.ClassDef) and node.name == "Tensor":
            body += ["\nclass Tensor:", *(f"    {line}" for line in stub.members(node))]
        elif isinstance(node, ast.FunctionDef):
            body += ["", *stub.function(node.name, getattr(tensor, node.name))]
    # Size is imported from there by others.
    imports = sorted(stub.imports - {"from .size import Size"} | {"from .size import Size as Size"})
    return "\n".join([HEAD, *imports, *body, ""])


class _Stub:
    """Lines of the stub, and the imports that their annotations need."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self._homes: dict[str, str] = {}

    def members(self, node: ast.ClassDef) -> Iterator[str]:
        """The class Tensor: first its state, then everything else by name."""
        yield from self.fields(node)
        for name, value in sorted(vars(Tensor).items()):
            if name == "__dict__":
                continue  # type checkers know it
            if isinstance(value, property):
                yield from self._property(name, value)
            elif isinstance(value, staticmethod):
                yield from [] if name == "__new__" else ["@staticmethod"]  # which that is by itself
                yield from self.function(name, value.__func__)
            elif inspect.isfunction(value):
                yield from self.function(name, value, "self")
        yield f"def __hash__(self) -> {self.annotation('int', tensor.__name__)}: ..."

    def fields(self, node: ast.ClassDef) -> Iterator[str]:
        """The annotated attributes of the class, also those that only type checkers see."""
        for part in ast.walk(node):
            if isinstance(part, ast.AnnAssign):
                yield f"{ast.unparse(part.target)}: {self.annotation(ast.unparse(part.annotation), tensor.__name__)}"

    def function(self, name: str, function: Callable[..., Any], first: str = "") -> Iterator[str]:
        """The declarations of a function, or of a method whose first parameter is `first`: one, or its overloads."""
        forms = _overloads(inspect.unwrap(function))
        for form in forms:
            yield f"@{self.known('overload', 'typing', 'overload')}"
            yield self._declaration(name, form, first)
        if not forms:
            yield self._declaration(name, function, first)

    def _declaration(self, name: str, function: Callable[..., Any], first: str) -> str:
        special = name.startswith("__")
        signature = inspect.signature(function)
        home = inspect.unwrap(function).__module__
        parts, last = [], None
        for parameter in signature.parameters.values():
            if special and parameter.name == "out":  # nobody calls an operator with it
                continue
            if parameter.kind is parameter.KEYWORD_ONLY and last not in (
                parameter.KEYWORD_ONLY,
                parameter.VAR_POSITIONAL,
            ):
                parts.append("*")
            last = parameter.kind
            if not parts and first:
                parts.append(first)
            elif name == "__new__" and not parts:
                parts.append(parameter.name)
            else:
                parts.append(self._parameter(parameter, home, special))
        returns = self.annotation(signature.return_annotation, home)
        override = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        return f"def {name}({', '.join(parts)}) -> {returns}: ...{override}"

    def _parameter(self, parameter: inspect.Parameter, home: str, special: bool) -> str:
        # An operator leaves operands that it does not know to the other side, so it takes any.
        anything = special and parameter.annotation == "TensorLike"
        of = "Any" if anything else parameter.annotation
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {_literal(parameter.default)}"
        return f"{stars}{parameter.name}: {self.annotation(of, home)}{default}"

    def _property(self, name: str, value: property) -> Iterator[str]:
        assert value.fget is not None
        (declared,) = self.function(name, value.fget, "self")
        yield from ("@property", declared)
        if value.fset is not None:
            of = list(inspect.signature(value.fset).parameters.values())[1].annotation
            given = self.annotation(of, value.fset.__module__)
            yield from (f"@{name}.setter", f"def {name}(self, value: {given}) -> None: ...")
        if value.fdel is not None:
            yield from (f"@{name}.deleter", f"def {name}(self) -> None: ...")

    def annotation(self, of: Any, home: str) -> str:
        """An annotation of module `home` as the stub writes it; what it names is imported."""
        if of is inspect.Parameter.empty:
            of = "Any"
        return ast.unparse(_Named(self, home).visit(ast.parse(str(of), mode="eval")))

    def known(self, name: str, source: str, found: str) -> str:
        """Make the stub import a name from where it is defined, under another name where a method of Tensor hides it."""
        public = f"_{name}" if hasattr(Tensor, name) else name
        if source == "builtins" and public == name:
            return name
        line = f"import {source}" if not found else f"from {_relative(source)} import {found}"
        line += "" if (found or source) == public else f" as {public}"
        if self._homes.setdefault(public, line) != line:
            raise ValueError(f"{public} is both `{line}` and `{self._homes[public]}`")
        self.imports.add(line)
        return public


class _Named(ast.NodeTransformer):
    """Gives the names in an annotation of module `home` the form that the stub has for them."""

    def __init__(self, stub: _Stub, home: str) -> None:
        self._stub, self._home = stub, home

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "Tensor":
            return node
        source, found = _origin(node.id, self._home)
        for part in _tree(source).body if source.startswith(f"{ROOT}.") else ():
            # A type alias is written out, so that an editor shows what it stands for.
            if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == found:
                return _Named(self._stub, source).visit(copy.deepcopy(part.value))
        return ast.Name(self._stub.known(node.id, source, found))


def _overloads(function: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """The overloads of a function, which they have the name of by which it is defined; an op may give it another."""
    defined = SimpleNamespace(__module__=function.__module__, __qualname__=function.__code__.co_qualname)
    return get_overloads(defined)  # type: ignore[arg-type]


def _literal(value: Any) -> str:
    """A default as the stub can write it."""
    try:
        ast.literal_eval(repr(value))
    except (ValueError, SyntaxError):
        return "..."
    return repr(value)


def _relative(module: str) -> str:
    within = module.removeprefix(f"{ROOT}.")
    return module if within == module else f"..{within}".replace("..core.", ".")


@cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, module
    return ast.parse(Path(spec.origin).read_text("utf-8"))


def _origin(name: str, home: str) -> tuple[str, str]:
    """The module that defines what module `home` calls `name`, and its name there, '' for a module itself."""
    if home.startswith(f"{ROOT}."):
        package = str(sys.modules[home].__package__)
        for node in ast.walk(_tree(home)):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            for alias in node.names:
                if (alias.asname or alias.name) != name:
                    continue
                if isinstance(node, ast.Import):
                    return alias.name, ""
                source = resolve_name("." * node.level + (node.module or ""), package)
                return (source, alias.name) if source not in sys.modules else _origin(alias.name, source)
        if not hasattr(builtins, name) or name in vars(sys.modules[home]):
            return home, name
        return "builtins", name
    return home, name


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
