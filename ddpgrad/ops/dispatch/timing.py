"""Times the kernels of ops: what profilers record of operators.

While timing is on, a timed kernel stands in the place of each op's own; at other times ops pay nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np

from ...backend.registry import backend_of, loaded
from ...core import spans
from ...core.modes import recorders
from .declare import Op
from .recording import replace_kernels


class Listener(Protocol):
    """A detailed recorder of spans, as ops see it."""

    def op(
        self, op: Op, began: float, ended: float, arguments: tuple[Any, ...], results: tuple[Any, ...]
    ) -> None:
        """The calling rank ran a kernel on these arguments, with arrays for tensors."""
        ...


_lock = threading.Lock()
_users: list[object] = []
_undo: list[Callable[[], None]] = []


def start(user: object) -> None:
    """Time ops until `user`, and all others that have asked, have called `stop`."""
    with _lock:
        if not _users:
            if recorders:
                raise RuntimeError(
                    "a profiler cannot begin within a summary or an export, which watch the ops"
                )
            backend_of("cpu")  # which nothing may have used yet
            _undo.append(replace_kernels(_timed, loaded()))
        _users.append(user)


def stop(user: object) -> None:
    """Undo `start`."""
    with _lock:
        _users.remove(user)
        if not _users:
            _undo.pop()()


def _timed(op: Op, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = spans.now()
        out = kernel(*args, **kwargs)
        ended = spans.now()
        for recorder in spans.detailed:
            results = tuple(out) if isinstance(out, (tuple, list)) else (out,)
            cast(Listener, recorder).op(op, began, ended, args, results)
        return out

    if isinstance(kernel, np.ufunc):
        timed.__dict__["nin"] = kernel.nin  # by which in-place ops know a kernel that writes where it is told
    return timed
