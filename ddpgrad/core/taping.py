"""While a thread records a step on a tape (`ops/dispatch/tape.py`): what library code tells it of.

Most of a step is ops, which the tape sees by itself. A function that has effects beside them (an optimizer's step, a draw of
random numbers, what a wrapper does before forward) is declared `@taped`: it is one entry of the tape, and a replay calls it again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Tape(Protocol):
    """What records a step of one thread."""

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `function` with nothing recorded of what happens within; a replay calls it again."""

    def emit(self, function: Callable[..., Any], args: tuple[Any, ...], results: Any) -> None:
        """Record that `function(*args)` gave `results`: arrays, sequences of them or None."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """`call` for a function of arrays without other effects."""

    def event(self, function: Callable[..., Any], args: tuple[Any, ...], now: Callable[[], Any]) -> Any:
        """Call `now`, of which nothing is recorded; a replay calls `function(*args)` in its place."""

    def knows(self, tensor: Any) -> bool:
        """Whether a tensor was there before the step."""
        ...

    def fills(self, leaf: Any) -> None:
        """The gradient of `leaf` is what the step makes of it."""

    def fail(self, reason: str) -> None:
        """What happens cannot be repeated: record no more. The step goes on."""


class _Taping(threading.local):
    """now: the tape of the calling thread, if it records."""

    now: Tape | None = None


taping = _Taping()


def taped(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which a tape records as one entry, whatever it does."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        tape = taping.now
        return function(*args, **kwargs) if tape is None else tape.call(function, args, kwargs)

    return call


def now(function: Callable[..., R], *args: Any) -> R:
    """`function(*args)`, as if it were declared `@taped`."""
    tape = taping.now
    return function(*args) if tape is None else tape.call(function, args, {})


def untaped(what: str) -> None:
    """Tell a tape that `what` happens, which is no entry of it."""
    if taping.now is not None:
        taping.now.fail(what)
