"""The backward passes that run in a thread, one within another, and what is to be called when they end.

A hook, or the backward of a Function, may start a backward pass. Each takes some ten Python calls within one another, and
Python allows a thousand in a thread: beyond that the next pass runs in a thread of its own.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..core import rank_local
from ..core.errors import GraphError
from ..core.modes import inference, mode, set_inference

if TYPE_CHECKING:
    from .nodes import Node
    from .walk import Walk


T = TypeVar("T")

PASSES_A_THREAD = 20
DEEPEST = 20_000

carried: list[threading.local] = [mode]
"""What is a thread's own and goes on to hold in the thread that takes over."""


class _Running(threading.local):
    """The walks of this thread, innermost last, and what to call when the outermost has ended."""

    def __init__(self) -> None:
        self.walks: list[Walk] = []
        self.callbacks: list[Callable[[], None]] = []


running_here = _Running()
carried.append(running_here)


def enter(walk: Walk) -> None:
    """A pass begins."""
    running_here.walks.append(walk)


def call_back() -> None:
    """The innermost pass has run well: call what was queued for its end."""
    walks = running_here.walks
    queued = running_here.callbacks if len(walks) == 1 else walks[-1].callbacks
    while queued:  # a callback may queue another
        queued.pop(0)()


def leave() -> Walk:
    """The innermost pass ends, well or not."""
    walk = running_here.walks.pop()
    while walk.cleanups:
        walk.cleanups.pop()()
    if not running_here.walks:
        running_here.callbacks = []
    return walk


def abandon(kept: int) -> None:
    """End all passes but the first `kept`: those of a replay that has failed."""
    while len(running_here.walks) > kept:
        mode.enabled = leave().grad_mode


def depth() -> int:
    """How many passes of this thread run."""
    return len(running_here.walks)


def current_pass() -> Walk:
    """The backward pass that runs in this thread, as an object to tell it from others. `GraphError` without."""
    if not running_here.walks:
        raise GraphError(
            "this can only be called during the backward pass, from a hook or a Function's backward"
        )
    return running_here.walks[-1]


def queue_callback(callback: Callable[[], None], *, outermost: bool = False) -> None:
    """Call `callback` once, when the backward pass that is running now has ended well.

    outermost: when the one has that no other pass of this thread has started, such as a reentrant checkpoint. Callbacks of
    one pass are called in the order in which they were queued; one that queues itself again is called after those of
    `DistributedDataParallel`, and finds averages.
    """
    if not running_here.walks:
        raise GraphError("queue_callback: no backward pass is running in this thread")
    outermost = outermost or len(running_here.walks) == 1
    (running_here.callbacks if outermost else running_here.walks[-1].callbacks).append(callback)


def only_misses(node: Node) -> bool:
    """Whether the node that runs now in this thread makes all of the gradient of `node`, and no hook is shown it."""
    walk = running_here.walks[-1] if running_here.walks else None
    return walk is not None and walk.lean and walk.waiting.get(node) == 1 and node not in walk.buffers


def in_new_thread(call: Callable[[], T], depth: int) -> T:
    """`call()` in a thread that acts for this one, which waits. `GraphError` at a depth that is no program's intention."""
    if depth >= DEEPEST:
        raise GraphError(
            f"backward was called from within backward {depth} times: a hook or a Function's backward that starts a "
            "backward pass must come to an end"
        )
    from ..backend.cuda import library  # here, as few programs come this deep

    states = [dict(state.__dict__) for state in carried]
    key, inferring, stream = rank_local.bound(), inference.on, library.current_stream()
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        rank_local.bind(key)
        for state, values in zip(carried, states, strict=True):
            state.__dict__.update(values)
        set_inference(inferring)
        try:
            if stream is not None:
                library.use_current()
                stream.use()
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
