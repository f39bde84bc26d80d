"""Writing in the background: a copy of the state, and the thread that stores it while training goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ddpgrad import Tensor
from ddpgrad.errors import CheckpointError


def snapshot(state: Any) -> Any:
    """`state` with tensors and arrays of its own, so that it stays as it is while the original changes.

    What occurs twice stays one object, as in the original.
    """
    return _copy(state, {})


def _copy(state: Any, copied: dict[int, Any]) -> Any:
    if isinstance(state, (Tensor, np.ndarray)):
        if id(state) not in copied:
            if isinstance(state, Tensor):
                copied[id(state)] = state.detach().clone().requires_grad_(state.requires_grad)
            else:
                copied[id(state)] = state.copy()
        return copied[id(state)]
    if isinstance(state, dict):
        return type(state)((key, _copy(value, copied)) for key, value in state.items())
    if type(state) in (list, tuple):
        return type(state)(_copy(item, copied) for item in state)
    return state


class Writer:
    """One thread at a time, which keeps its error for whoever waits for it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: CheckpointError | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Run `write` in a thread. Python does not end before it has."""
        self._thread = threading.Thread(target=self._run, args=(write,), name="checkpoint writer")
        self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being written; raises what went wrong since the last call."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except CheckpointError as error:
            self._error = error
            # The program may never ask again.
            print(f"checkpoint writer: {error}", file=sys.stderr)
