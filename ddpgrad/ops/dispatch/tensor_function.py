"""The declaration of a function made of ops: whether it is a Tensor method, has an in-place form, takes `out=`.

    @tensor_function(inplace=True, out=True)
    def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
        '''input + value * tensor1 * tensor2.'''
        return input + tensor1 * tensor2 * value

It needs no gradient rule, since the ops that it is made of have theirs. `ops/methods.py` attaches
what is declared here to the class Tensor.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, overload

import numpy as np

from ...core.errors import not_of
from ...core.overrides import answer, ask, is_overridden, overridable, overriding, shown
from ...core.tensor import Tensor
from .autocast import is_listed, under_autocast, without_autocast
from .declare import NUMPY_NAMES
from .dtype_lists import REFUSED_BY_FUNCTIONS, refusing
from .out import write_out
from .signatures import TakesOut, with_out

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Declared(NamedTuple):
    """A function made of ops, and whether it is a method of Tensor and has an in-place form."""

    call: Callable[..., Any]
    method: bool
    inplace: bool


FUNCTIONS: dict[str, Declared] = {}
"""Every function made of ops, by name."""


@overload
def tensor_function(
    *,
    method: bool = True,
    inplace: bool = False,
    out: Literal[True],
    aliases: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> Callable[[Callable[P, R]], TakesOut[P, R]]: ...
@overload
def tensor_function(
    *,
    method: bool = True,
    inplace: bool = False,
    out: Literal[False] = False,
    aliases: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> Callable[[F], F]: ...
def tensor_function(
    *,
    method: bool = True,
    inplace: bool = False,
    out: bool = False,
    aliases: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> Any:
    """Declare a function whose first argument is a Tensor.

    method: it is a Tensor method too; inplace: so is its in-place form, with a trailing
    underscore; out: it takes the keyword `out`, which it must not declare itself; names: other
    names of its arguments, under which PyTorch takes them too.
    """

    def declare(function: Callable[..., Any]) -> Any:
        name = function.__name__
        parameters = inspect.signature(function).parameters
        call = function
        if out or "dim" in parameters or names or _packed(parameters) or _flags(parameters):
            call = _with_keywords(function, out, names)
        else:
            call = overridable(function)
        inner = call
        if is_listed(name):
            call = under_autocast(call)
        if name in REFUSED_BY_FUNCTIONS:
            call = refusing(call, REFUSED_BY_FUNCTIONS[name])
        if call is not inner:
            inner.__dict__["shown"] = call
        for known in (name, *aliases):
            FUNCTIONS[known] = Declared(call, method, inplace)
        return call

    return declare


def _packed(parameters: Mapping[str, inspect.Parameter]) -> str | None:
    """The name of the parameter for sizes given one by one, which by name is one sequence."""
    return next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL), None)


def _flags(parameters: Mapping[str, inspect.Parameter]) -> list[tuple[int, str]]:
    """The parameters that are True or False, with their places."""
    return [(i, p.name) for i, p in enumerate(parameters.values()) if p.annotation == "bool"]


def _other_names(parameters: Mapping[str, inspect.Parameter]) -> dict[str, str]:
    """NumPy's names of the parameters, and `input` for the first of them, whatever PyTorch's documentation calls it."""
    first = next(iter(parameters))
    names = {"input": first} if first != "input" and "input" not in parameters else {}
    return names | {other: name for name, other in NUMPY_NAMES.items() if name in parameters}


def takes_out(function: Callable[P, R]) -> TakesOut[P, R]:
    """`function` that takes the keyword `out` too."""
    return _with_keywords(function, True)


def takes_axis(function: F) -> F:
    """`function` that takes NumPy's names of its arguments too."""
    return _with_keywords(function, False)


def require_flag(function: str, name: str, value: Any) -> None:
    """`TypeError` for an argument of a function that is neither True nor False: mostly a number meant for another one."""
    if not isinstance(value, (bool, np.bool_)):
        hint = f". Give several dims as a tuple: {function}(dim=(0, 1))" if name == "keepdim" else ""
        raise TypeError(f"{function}(): argument '{name}' must be bool, not {type(value).__name__}{hint}")


def _with_keywords(function: Callable[..., Any], out: bool, names: Mapping[str, str] | None = None) -> Any:
    """`function` that takes other names of its arguments too, NumPy's among them, and `out=` if asked."""
    parameters = inspect.signature(function).parameters
    names = {**_other_names(parameters), **(names or {})}
    first, packed = next(iter(parameters)), _packed(parameters)
    flags = _flags(parameters)
    first_flag = flags[0][0] if flags else len(parameters)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (overriding or (args and args[0].__class__ is not Tensor)) and is_overridden(args, kwargs):
            return ask(shown(call), args, kwargs)
        if len(args) > first_flag:
            for place, name in flags:
                if place < len(args):
                    require_flag(function.__name__, name, args[place])
        if not kwargs:
            try:
                return function(*args)
            except AttributeError as error:
                return answer(shown(call), args, {}, not_of(Tensor, function, args, {}) or error)
            except (TypeError, NotImplementedError) as error:
                return answer(shown(call), args, {}, error)
        for name in [name for name in kwargs if name in names]:
            kwargs[names[name]] = kwargs.pop(name)
        for _, name in flags:
            if name in kwargs:
                require_flag(function.__name__, name, kwargs[name])
        if packed in kwargs:
            args = (*(args or (kwargs.pop(first),)), kwargs.pop(packed))
        target = kwargs.pop("out", None) if out else None
        if target is None:
            return function(*args, **kwargs)
        result = without_autocast(function, args, kwargs)
        return write_out(function.__name__, target, result, (*args, *kwargs.values()))

    call.__dict__.update(inside=function, names=names)
    if out:
        call.__dict__["__signature__"] = with_out(inspect.signature(function))
    return call
