"""A result that will be there later, as PyTorch's `torch.futures` names it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value that is computed when it is asked for, or set by whoever has it.

    complete: returns the value, waiting for it if need be. poll: True when `complete` would
    not wait. Without them the value comes from `set_result`.
    """

    def __init__(
        self,
        complete: Callable[[], T] | None = None,
        poll: Callable[[], bool] | None = None,
        *,
        devices: Sequence[Any] | None = None,
    ) -> None:
        self._complete = complete
        self._poll = poll
        self._value: T | None = None
        self._error: BaseException | None = None
        self._done = False
        self._settling: int | None = None  # the thread that computes the value
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def __reduce__(self) -> NoReturn:
        raise RuntimeError("Can not pickle torch.futures.Future")

    def done(self) -> bool:
        """True when the value, or an error, is there; does not wait."""
        if not self._done and self._poll is not None and self._poll():
            self._settle()
        return self._done

    def wait(self) -> T:
        """The value, when it is there; raises what went wrong instead of it.

        A value that another thread computes or sets is waited for.
        """
        self._arrive()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def value(self) -> T:
        """The value of a future that is done; an error before."""
        if not self.done():
            raise RuntimeError("Future.value(): the value is not there yet; call wait()")
        return self.wait()

    def set_result(self, result: T) -> None:
        """Give the value."""
        if self._done:
            raise RuntimeError("Future.set_result(): the future is done already")
        self._finish(result, None)

    def set_exception(self, error: BaseException) -> None:
        """Give what went wrong; `wait` raises it."""
        if not isinstance(error, BaseException):
            raise AssertionError(f"{error!r} is of type {type(error)}, not an Exception.")
        self._finish(None, error)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of what `callback` makes of this one; it is called when this one is done."""
        if not callable(callback):
            raise TypeError(f"Future.then(): callback must be callable, got {type(callback).__name__}")
        following: Future[S] = Future(lambda: _after(self, callback), self.done)
        if self._done:
            following._settle()
        else:
            self._callbacks.append(lambda _: following._settle())
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call `callback(self)` when this is done; at once if it is."""
        if self._done:
            self._call(callback)
        else:
            self._callbacks.append(callback)

    def within(self, seconds: float) -> bool:
        """Wait for the value, where another thread sets it no longer than so long; whether it, or an error, is there."""
        self._arrive(None if seconds == float("inf") else seconds)
        return self._done

    def _arrive(self, limit: float | None = None) -> None:
        """Be done when this returns, or after `limit` seconds of waiting for another thread."""
        if not self._done and self._complete is not None:
            self._settle()
        if self._done:
            return
        if threading.active_count() == 1 or self._settling == threading.get_ident():
            raise RuntimeError("Future.wait(): nothing computes this value; call set_result() first")
        there = threading.Event()
        self._callbacks.append(lambda _: there.set())
        if not self._done:  # else it came meanwhile, and calls nobody any more
            there.wait(limit)

    def _call(self, callback: Callable[[Future[T]], Any]) -> None:
        try:
            callback(self)
        except Exception as error:
            # What called set_result() has no part in it.
            warnings.warn(
                f"Got the following error when running the callback: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _settle(self) -> None:
        # A future that waits for another is settled by that one, too.
        if self._done or self._settling is not None:
            return
        self._settling = threading.get_ident()
        assert self._complete is not None
        try:
            value = self._complete()
        except Exception as error:
            self._finish(None, error)
        else:
            self._finish(value, None)

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        if self._done:
            return
        self._value, self._error, self._done = value, error, True
        self._complete = self._poll = None
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)


def _after(future: Future[T], callback: Callable[[Future[T]], S]) -> S:
    future._arrive()
    return callback(future)


def finished(value: T) -> Future[T]:
    """A future whose value is there."""
    future = Future[T]()
    future.set_result(value)
    return future


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of all `futures`, done when all of them are."""

    def complete() -> list[Future[Any]]:
        for future in futures:
            future.wait()
        return list(futures)

    return Future(complete, lambda: all(future.done() for future in futures))


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The values of all `futures`, in order."""
    return [future.wait() for future in futures]
