"""What is replaced while a function is traced: functions, by ones that make nodes of their calls, and calls of modules."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from ...core.tensor import Tensor
from ...nn import Module
from .proxy import find_proxy

_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
"""The globals of modules by themselves and the name of a function in them that is one call of a graph."""
_orig_module_call = Module.__call__
_orig_module_getattr = Module.__getattr__
_patchers: list[Any] = []


class _Patcher:
    """A block in which names stand for something else."""

    def __enter__(self) -> Self:
        self._stack, self._done = ExitStack(), set()
        _patchers.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _patchers.remove(self)
        self._stack.close()

    def patch(self, frame_dict: dict[str, Any], name: str, new_fn: Any, deduplicate: bool = True) -> None:
        """Give `name` another value in a dict of names."""
        if deduplicate and (id(frame_dict), name) in self._done:
            return
        self._done.add((id(frame_dict), name))
        self._stack.enter_context(_replaced(frame_dict, name, new_fn))

    def patch_method(self, cls: Any, name: str, new_fn: Any, deduplicate: bool = True) -> None:
        """Give a class another method. `__getattr__` of Module is asked for tensors that are there, too."""
        if cls is Module and name == "__getattr__":
            name, new_fn = "__getattribute__", _asking_for_members(new_fn)
        before = cls.__dict__.get(name)
        setattr(cls, name, new_fn)
        self._stack.callback(lambda: delattr(cls, name) if before is None else setattr(cls, name, before))


def _asking_for_members(getattr_: Callable[[Module, str], Any]) -> Callable[[Module, str], Any]:
    def read(self: Module, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return getattr_(self, name) if isinstance(value, Tensor) and _is_member(self, name) else value

    return read


def _is_member(module: Module, name: str) -> bool:
    try:
        _orig_module_getattr(module, name)
    except AttributeError:
        return False
    return True


@contextmanager
def _replaced(names: dict[str, Any], name: str, value: Any) -> Iterator[None]:
    missing = object()
    before = names.get(name, missing)
    names[name] = value
    try:
        yield
    finally:
        if before is missing:
            del names[name]
        else:
            names[name] = before


def _as_node(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which becomes a node where a proxy is among its arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = find_proxy(args, kwargs)
        if found is None:
            return function(*args, **kwargs)
        return found.tracer.create_proxy("call_function", function, args, kwargs)

    return call


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: Collection[int]) -> None:
    """Have the functions with these ids make nodes where `frame_dict` has them."""
    for name, value in list(frame_dict.items()):
        if callable(value) and id(value) in function_ids and not name.startswith("__"):
            patcher.patch(frame_dict, name, _as_node(value))


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """Have what `wrap` marks make nodes."""
    for (_, name), names in _wrapped_fns_to_patch.copy().items():
        patcher.patch(names, name, _as_node(names[name] if name in names else getattr(builtins, name)))


def is_fx_tracing() -> bool:
    """Whether a function is being traced."""
    return bool(_patchers)
