"""`torch.overrides`: a mode is asked by the functions that ask for it; subclasses of Tensor override nothing.

Those are the ones of `nn.init`, and functions of programs that call `has_torch_function`. Ops ask objects that are no
Tensors and have a `__torch_function__` (`ops/dispatch/foreign.py`), and nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from ..core.modes import ask_mode, function_modes
from ..core.tensor import Tensor
from . import absent

__getattr__ = absent.looks_below(__name__)


class TorchFunctionMode:
    """Within a `with` block of it, functions that ask call `__torch_function__` in their place: see the module."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What `func(*args, **kwargs)` is to return; a subclass defines it."""
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Self:
        function_modes.entered.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        function_modes.entered.pop()


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is to be asked; no argument overrides a function."""
    return bool(function_modes.entered)


def has_torch_function_unary(obj: Any) -> bool:
    """See `has_torch_function`."""
    return bool(function_modes.entered)


def has_torch_function_variadic(*args: Any) -> bool:
    """See `has_torch_function`."""
    return bool(function_modes.entered)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the innermost mode makes of `public_api(*args, **kwargs)`, or that itself."""
    return ask_mode(public_api, args, kwargs) if function_modes.entered else public_api(*args, **kwargs)


def is_tensor_like(inp: Any) -> bool:
    """True for a Tensor."""
    return isinstance(inp, Tensor)


__all__ = [
    "TorchFunctionMode", "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like",
]  # fmt: skip
