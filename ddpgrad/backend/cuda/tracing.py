"""CUDA C++ from an optimizer's rule: the rule runs once on symbols that write down what is done to them.

Imports nothing of CuPy, so that it can be tested without.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

# What a rule takes from F, in C++. A symbol has the type A or bool.
FUNCTIONS = r"""
template <class V> __device__ V f_where(bool condition, V a, V b) { return condition ? a : b; }
template <class V> __device__ V f_maximum(V a, V b) { return a > b || a != a ? a : b; }
template <class V> __device__ V f_minimum(V a, V b) { return a < b || a != a ? a : b; }
template <class V> __device__ V f_sign(V x) { return x > V(0) ? V(1) : x < V(0) ? V(-1) : V(0); }
template <class V> __device__ V f_abs(V x) { return x < V(0) ? -x : x; }
template <class V> __device__ V f_sqrt(V x) { return sqrt(x); }
"""


class Trace:
    """`F` for symbols, and the statements that they wrote."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._numbers = itertools.count()

    def let(self, expression: str) -> Symbol:
        """A new symbol for an expression."""
        name = f"t{next(self._numbers)}"
        self.statements.append(f"const auto {name} = {expression};")
        return Symbol(self, name)

    def __getattr__(self, function: str) -> Callable[..., Symbol]:
        if f"f_{function}(" not in FUNCTIONS:
            raise AttributeError(f"an optimizer's rule uses F.{function}, which CUDA C++ here does not have")
        return lambda *args: self.let(f"f_{function}({', '.join(map(text, args))})")


class Symbol:
    """A variable of type A (or bool, of a comparison); what is done to it becomes a statement."""

    def __init__(self, trace: Trace, name: str) -> None:
        self.trace, self.name = trace, name

    def __bool__(self) -> bool:
        raise TypeError("an optimizer's rule must use F.where in place of if")

    def __neg__(self) -> Symbol:
        return self.trace.let(f"-{self.name}")

    def __pow__(self, other: Any) -> Symbol:
        return self.trace.let(f"pow({self.name}, {text(other)})")

    def __rpow__(self, other: Any) -> Symbol:
        return self.trace.let(f"pow({text(other)}, {self.name})")


def text(value: Any) -> str:
    """A symbol's name, or a number as C++."""
    return value.name if isinstance(value, Symbol) else f"A({float(value)!r})"


def _attach(name: str, sign: str, reflected: str | None) -> None:
    def left(self: Symbol, other: Any) -> Symbol:
        return self.trace.let(f"{self.name} {sign} {text(other)}")

    def right(self: Symbol, other: Any) -> Symbol:
        return self.trace.let(f"{text(other)} {sign} {self.name}")

    setattr(Symbol, name, left)
    if reflected is not None:
        setattr(Symbol, reflected, right)


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/")):
    _attach(f"__{_name}__", _sign, f"__r{_name}__")
for _name, _sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    _attach(f"__{_name}__", _sign, None)


def traced(
    rule: Callable[..., Any], param: str, grad: str, states: Sequence[str], numbers: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The statements of an update's rule on variables of these names, and the names of its results."""
    return traced_rule(rule, (param, grad, *states, *numbers))


def traced_rule(rule: Callable[..., Any], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The statements of a rule on variables of these names, and the names of its results."""
    trace = Trace()
    symbols = [Symbol(trace, name) for name in names]
    out = rule(trace, *symbols)
    results = out if isinstance(out, tuple) else (out,)
    return trace.statements, [text(result) for result in results]
