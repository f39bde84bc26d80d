"""Nested backward passes: beyond the depth of Python's stack the next runs in a thread of its own.

A hook, or the backward of a Function, may start a backward pass. Each takes some ten Python calls
within one another, and Python allows a thousand in a thread.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from ..core import rank_local
from ..core.errors import GraphError
from ..core.modes import inference, mode, set_inference

T = TypeVar("T")

PASSES_A_THREAD = 20
DEEPEST = 20_000

carried: list[threading.local] = [mode]
"""What is a thread's own and goes on to hold in the thread that takes over."""


def in_new_thread(call: Callable[[], T], depth: int) -> T:
    """`call()` in a thread that acts for this one, which waits. `GraphError` at a depth that is no program's intention."""
    if depth >= DEEPEST:
        raise GraphError(
            f"backward was called from within backward {depth} times: a hook or a Function's backward that starts a "
            "backward pass must come to an end"
        )
    from ..backend.cuda import library  # here, as few programs come this deep

    states = [dict(state.__dict__) for state in carried]
    key, inferring = rank_local.bound(), inference.on
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        rank_local.bind(key)
        for state, values in zip(carried, states, strict=True):
            state.__dict__.update(values)
        set_inference(inferring)
        try:
            if library.in_use():
                library.use_current()
            results.append(call())
        except BaseException as error:  # whatever it is, the thread that waits raises it
            errors.append(error)
        finally:
            set_inference(False)

    context = contextvars.copy_context()  # NumPy's settings of what it warns of
    thread = threading.Thread(target=context.run, args=(work,), name=f"backward at depth {depth}")
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()
    return results[0]
