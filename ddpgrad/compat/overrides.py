"""`torch.overrides`: modes, and what programs ask about functions and arguments with a `__torch_function__`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from importlib import import_module
from types import FunctionType
from typing import Any, Self

from ..core.dispatching import reentrant
from ..core.overrides import ask, asked_members, asks, enter, in_mode, leave, nowrap, overloaded
from ..core.tensor import Tensor
from ..ops.dispatch.tensor_function import FUNCTIONS
from . import absent

__getattr__ = absent.looks_below(__name__)

_PACKAGE = __name__.partition(".")[0]


class TorchFunctionMode:
    """Within a `with` block of it, ops and functions that take tensors call `__torch_function__` in their place."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What `func(*args, **kwargs)` is to return; a subclass defines it."""
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Self:
        enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        leave()


enable_reentrant_dispatch = reentrant
BaseTorchFunctionMode = TorchFunctionMode


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode or one of these arguments is to be asked."""
    return in_mode() or any(map(asks, relevant_args))


def has_torch_function_unary(obj: Any) -> bool:
    """See `has_torch_function`."""
    return in_mode() or asks(obj)


def has_torch_function_variadic(*args: Any) -> bool:
    """See `has_torch_function`."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the innermost mode or one of `relevant_args` makes of `public_api(*args, **kwargs)`; TypeError if none answers."""
    return ask(public_api, args, kwargs, overloaded(relevant_args))


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Any], Any]:
    """Let a function ask the arguments that `dispatcher` returns of a call's."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def get_default_nowrap_functions() -> set[Any]:
    """The functions whose results the usual `__torch_function__` leaves in their class."""
    return nowrap()


@functools.cache
def _names() -> dict[Any, str]:
    """The functions that ask their arguments, and what is asked of tensors, with PyTorch's names."""
    import_module(f"{_PACKAGE}.ops").load_all()
    found: dict[Any, str] = {}
    made_of_ops = {declared.call for declared in FUNCTIONS.values()}
    for name in ("", ".nn.functional", ".nn.init", ".linalg", ".fft", ".special"):
        module = import_module(_PACKAGE + name)
        for known in dir(module):
            value = getattr(module, known)
            if isinstance(value, FunctionType) and (
                {"op", "asks"} & value.__dict__.keys() or value in made_of_ops
            ):
                found.setdefault(value, f"torch{name}.{known}")
    for name, member in asked_members().items():
        if isinstance(member, property):
            found[member.__get__] = f"torch.Tensor.{name}.__get__"
        else:
            found.setdefault(member, f"torch.Tensor.{name}")
    return found


def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions that ask their arguments, by the module or class where programs find them."""
    found: dict[Any, list[Any]] = {}
    for function, name in _names().items():
        home = name.removesuffix(".__get__").rpartition(".")[0].removeprefix("torch")
        place = Tensor if home == ".Tensor" else import_module(_PACKAGE + home)
        found.setdefault(place, []).append(function)
    return found


def resolve_name(f: Any) -> str | None:
    """What PyTorch calls a function that asks its arguments; None for others."""
    return _names().get(f)


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether `func` is what the class Tensor has, or reads an attribute of it."""
    members = asked_members().values()
    return func in members or any(func == m.__get__ for m in members if isinstance(m, property))


def is_tensor_like(inp: Any) -> bool:
    """True for a Tensor, and for what has a `__torch_function__`."""
    return hasattr(inp, "__torch_function__")


__all__ = [
    "TorchFunctionMode", "get_default_nowrap_functions", "get_overridable_functions", "handle_torch_function",
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like",
    "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip
