"""Whether operations are recorded: `no_grad`, `enable_grad`, `set_grad_enabled`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(threading.local):
    """Per thread, as in PyTorch; a class attribute is the state of a new thread."""

    enabled: bool = True


mode = _Mode()


def is_grad_enabled() -> bool:
    """True when operations of this thread are recorded for backward."""
    return mode.enabled


class _GradContext:
    """A context manager, also usable as a decorator, that sets the grad mode and restores it."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(mode.enabled)
        mode.enabled = self._enabled

    def __exit__(self, *exc: object) -> None:
        mode.enabled = self._previous.pop()

    def __call__(self, function: F) -> F:
        enabled = self._enabled

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            previous, mode.enabled = mode.enabled, enabled
            try:
                return function(*args, **kwargs)
            finally:
                mode.enabled = previous

        return wrapper  # type: ignore[return-value]


class no_grad(_GradContext):
    """Operations inside are not recorded. `with no_grad():` or `@no_grad()`."""

    def __init__(self) -> None:
        super().__init__(False)

    def __new__(cls, function: Any = None) -> Any:
        # PyTorch also takes the bare decorator `@no_grad`.
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()
        return made(function)


class enable_grad(no_grad):
    """Operations inside are recorded, also within `no_grad`."""

    def __init__(self) -> None:
        _GradContext.__init__(self, True)


class inference_mode(no_grad):
    """As `no_grad`; `inference_mode(False)` leaves recording on."""

    def __init__(self, mode: bool = True) -> None:
        _GradContext.__init__(self, not mode)


class set_grad_enabled(_GradContext):
    """Sets the mode at once; used as a context manager, restores it at the end."""

    def __init__(self, enabled: bool) -> None:
        super().__init__(enabled)
        self._before = mode.enabled
        mode.enabled = enabled

    def __enter__(self) -> None:
        self._previous.append(self._before)
        mode.enabled = self._enabled

    def __call__(self, function: F) -> F:
        mode.enabled = self._before
        return super().__call__(function)
