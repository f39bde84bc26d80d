"""The tensors that a function has from outside: what it names, and what lies in the objects that it names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from .. import Tensor
from ..nn.modules.module import Module

_DEPTH = 4  # steps from the function: objects, lists and functions that it names, and what these hold
_LONG = 1000  # a list or dict of so many entries is data


def tensors_from_outside(function: Callable[..., Any]) -> Iterator[Tensor]:
    """Tensors that `function` has without being given them, in its closure, its globals and the object it is a method of."""
    return _in(function, _DEPTH)


def _in(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Module):
        yield from value.parameters()
        yield from value.buffers()
    elif depth and not isinstance(value, (ModuleType, type)):
        for held in _held(value):
            yield from _in(held, depth - 1)


def _held(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value) if len(value) < _LONG else []
    if isinstance(value, dict):
        return list(value.values()) if len(value) < _LONG else []
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    owner = getattr(value, "__self__", None)
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    held = [owner, getattr(owner, "__dict__", None)]
    if code is not None:
        held += function.__defaults__ or ()
        held += [function.__globals__[name] for name in code.co_names if name in function.__globals__]
        held += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return held


def _is_filled(cell: Any) -> bool:
    """Whether a name that a function has from outside has a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
