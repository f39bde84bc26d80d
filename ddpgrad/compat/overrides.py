"""`torch.overrides`: `__torch_function__` is not called here, neither for subclasses nor for other classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core.tensor import Tensor
from . import absent

globals().update(
    absent.stand_ins(
        "overrides",
        absent.Part(
            "ops ask nobody before they run; see `autograd.graph` for hooks, and modules for theirs",
            "TorchFunctionMode",
        ),
    )
)
__getattr__ = absent.looks_below(__name__)


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """False: no argument overrides a function."""
    return False


def has_torch_function_unary(obj: Any) -> bool:
    """False: see `has_torch_function`."""
    return False


def has_torch_function_variadic(*args: Any) -> bool:
    """False: see `has_torch_function`."""
    return False


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """`public_api(*args, **kwargs)`: nobody overrides it."""
    return public_api(*args, **kwargs)


def is_tensor_like(inp: Any) -> bool:
    """True for a Tensor."""
    return isinstance(inp, Tensor)


__all__ = [
    "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like",
]  # fmt: skip
