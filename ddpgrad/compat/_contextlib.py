"""`torch.utils._contextlib`: blocks that decorate functions, which libraries derive from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.grad_mode import decorated


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` run within `ctx`, which is a block or makes one; a generator is within it only while it runs."""
    return decorated(func, ctx if callable(ctx) and not hasattr(ctx, "__enter__") else lambda: ctx)


class _DecoratorContextManager:
    """A block that can be a decorator: each call of the function is within a block of its own, which `clone` makes."""

    def __call__(self, orig_func: Any) -> Any:
        return context_decorator(self.clone, orig_func)

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another block; a class whose `__init__` takes arguments has its own."""
        return type(self)()
