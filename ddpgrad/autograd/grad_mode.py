"""Whether operations are recorded: `no_grad`, `enable_grad`, `set_grad_enabled`, `inference_mode`."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Generator
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
        return _decorated(function, self._enabled)


def _decorated(function: F, enabled: bool) -> F:
    """`function` in the grad mode `enabled`; a generator is in it only while it runs."""
    if inspect.isgeneratorfunction(function):
        return _decorated_generator(function, enabled)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        previous, mode.enabled = mode.enabled, enabled
        try:
            return function(*args, **kwargs)
        finally:
            mode.enabled = previous

    return wrapper  # type: ignore[return-value]


def _decorated_generator(function: Any, enabled: bool) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        resume: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                previous, mode.enabled = mode.enabled, enabled
                try:
                    value = resume()
                except StopIteration as stop:
                    return stop.value
                finally:
                    mode.enabled = previous
                try:
                    resume = functools.partial(generator.send, (yield value))
                except GeneratorExit:
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.throw, error)
        finally:
            generator.close()

    return wrapper


class no_grad(_GradContext):
    """Operations inside are not recorded. `with no_grad():`, `@no_grad()` or `@no_grad`."""

    _inside = False

    def __init__(self) -> None:
        super().__init__(self._inside)

    def __new__(cls, function: Any = None) -> Any:
        # PyTorch also takes the bare decorator: what is decorated is returned, not an instance.
        return super().__new__(cls) if function is None else _decorated(function, cls._inside)


class enable_grad(no_grad):
    """Operations inside are recorded, also within `no_grad`."""

    _inside = True


class inference_mode(_GradContext):
    """As `no_grad`; `inference_mode(False)` leaves recording on."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)

    def __new__(cls, mode: Any = True) -> Any:
        return _decorated(mode, False) if callable(mode) else super().__new__(cls)


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
