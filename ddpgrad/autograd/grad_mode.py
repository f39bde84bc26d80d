"""Grad mode: `no_grad`, `enable_grad`, `set_grad_enabled`, `inference_mode`."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ..core.modes import inference, mode, set_inference

F = TypeVar("F", bound=Callable[..., Any])


# `mode` is also the name of PyTorch's arguments.
_mode = mode


def is_grad_enabled() -> bool:
    """The grad mode of this thread. As in PyTorch, `enable_grad` sets it in inference mode too, where it has no effect."""
    return mode.enabled or (inference.on and mode.wanted)


class _GradContext:
    """A context manager, also usable as a decorator, that sets the grad mode and restores it."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._previous: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self._previous.append((mode.enabled, mode.wanted))
        self._set()

    def _set(self) -> None:
        mode.wanted = self._enabled
        mode.enabled = self._enabled and not inference.on  # where nothing is recorded, whatever is wanted

    def __exit__(self, *exc: object) -> None:
        mode.enabled, mode.wanted = self._previous.pop()

    def __call__(self, function: F) -> F:
        return decorated(function, lambda: _GradContext(self._enabled))


def decorated(function: F, context: Callable[[], Any]) -> F:
    """`function` run within what `context` makes; a generator is within it only while it runs."""
    if inspect.isclass(function):
        warnings.warn(
            "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
            "functions or methods. To preserve the current behavior of class decoration, you can directly decorate "
            "the `__init__` method and nothing else.",
            FutureWarning,
            stacklevel=3,
        )
    elif inspect.isgeneratorfunction(function):
        return _decorated_generator(function, context)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    # A class's own attributes are not the function's.
    return functools.update_wrapper(
        wrapper, function, updated=() if inspect.isclass(function) else ("__dict__",)
    )  # type: ignore[return-value]


def _decorated_generator(function: Any, context: Callable[[], Any]) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        resume: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                try:
                    with context():
                        value = resume()
                except StopIteration as stop:
                    return stop.value
                try:
                    resume = functools.partial(generator.send, (yield value))
                except GeneratorExit:
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.throw, error)
        finally:
            with context():
                generator.close()

    return wrapper


class no_grad(_GradContext):
    """Operations inside are not recorded. `with no_grad():`, `@no_grad()` or `@no_grad`."""

    _inside = False

    def __init__(self) -> None:
        super().__init__(self._inside)

    def clone(self) -> Any:
        """Another one like it."""
        return type(self)()

    def __new__(cls, orig_func: Any = None) -> Any:
        # PyTorch also takes the bare decorator: what is decorated is returned, not an instance.
        return super().__new__(cls) if orig_func is None else decorated(orig_func, cls)


class enable_grad(no_grad):
    """Operations inside are recorded, also within `no_grad`, but not within `inference_mode`."""

    _inside = True


class inference_mode(_GradContext):
    """As `no_grad`; besides, tensors made inside can never take part in a graph (`Tensor.is_inference`).

    `inference_mode(False)` is the ordinary mode again. Also a decorator, with or without parentheses.
    """

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)
        self.mode = mode
        self._inference_before: list[bool] = []

    def __new__(cls, mode: Any = True) -> Any:
        return super().__new__(cls) if isinstance(mode, bool) else decorated(mode, cls)

    def __enter__(self) -> None:
        self._inference_before.append(inference.on)
        set_inference(self.mode)
        super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        set_inference(self._inference_before.pop())

    def __call__(self, function: F) -> F:
        return decorated(function, lambda: inference_mode(self.mode))

    def clone(self) -> Any:
        """Another one like it."""
        return inference_mode(self.mode)


def is_inference_mode_enabled() -> bool:
    """True when this thread is in inference mode."""
    return inference.on


class _Multithreading(threading.local):
    enabled: bool = True


_multithreading = _Multithreading()


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was told last."""
    return _multithreading.enabled


class set_multithreading_enabled:
    """Accepted for PyTorch's sake, and remembered: backward always runs in the thread that calls it."""

    def __init__(self, mode: bool) -> None:
        self._before = _multithreading.enabled
        _multithreading.enabled = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _multithreading.enabled = self._before


class set_grad_enabled(_GradContext):
    """Sets the mode at once; used as a context manager, restores it at the end."""

    def __init__(self, mode: bool) -> None:
        if mode.__class__ is not bool:
            raise TypeError(
                f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}"
            )
        super().__init__(mode)
        self.mode = mode
        self._before = _mode.enabled, _mode.wanted
        self._set()

    def __enter__(self) -> None:
        self._previous.append(self._before)
        self._set()

    def __call__(self, function: F) -> F:
        _mode.enabled, _mode.wanted = self._before
        return super().__call__(function)

    def clone(self) -> Any:
        """Another one like it."""
        return set_grad_enabled(self.mode)

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"
