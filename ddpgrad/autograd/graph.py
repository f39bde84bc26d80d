"""`torch.autograd.graph`: nodes, edges, and hooks on several tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core.tensor import Tensor
from . import engine
from .accumulate import edge_of
from .nodes import GradientEdge, Node, RemovableHandle
from .saved import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of `tensor` goes; `grad` and `backward` take it in place of the tensor."""
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients"
        )
    node, nr = edge_of(tensor)
    assert node is not None
    return GradientEdge(node.shown(), nr)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Say that `tensor` (or each of them) was changed in place by something that does not count."""
    given = (
        (tensor,)
        if isinstance(tensor, Tensor)
        else tuple(tensor)
        if isinstance(tensor, Iterable)
        else (tensor,)
    )
    for t in given:
        if not isinstance(t, Tensor):
            raise RuntimeError(
                f"increment_version expects a Tensor, or an iterable of them, got {type(t).__name__}"
            )
        if not t.is_inference():  # which counts nothing
            t._versions[0] += 1


class _MultiHandle:
    """Removes the hooks of `register_multi_grad_hook` together."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all"
) -> _MultiHandle:
    """Call `fn` once per backward pass when gradients of `tensors` are known.

    mode: with 'all', `fn(grads)` runs when the last gradient that this pass computes has arrived,
    None for the others; with 'any', `fn(grad)` runs at the first. Returns a removable handle.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    nodes = [edge_of(t)[0] for t in tensors]
    lock = threading.Lock()
    # What is known of each backward pass that runs: several may, in different threads.
    passes: dict[Any, list[Any]] = {}
    waiting: dict[Any, int] = {}

    def hook_of(i: int) -> Callable[[Tensor], None]:
        def all_hook(grad: Tensor) -> None:
            task = engine.current_pass()
            with lock:
                if task not in passes:
                    passes[task] = [None] * len(tensors)
                    waiting[task] = sum(engine.will_execute(node) for node in nodes)
                    engine.queue_cleanup(lambda: (passes.pop(task, None), waiting.pop(task, None)))
                passes[task][i] = grad
                waiting[task] -= 1
                complete = waiting[task] == 0
            if complete:
                fn(passes[task])

        def any_hook(grad: Tensor) -> None:
            task = engine.current_pass()
            with lock:
                first = task not in passes
                if first:
                    passes[task] = []
                    engine.queue_cleanup(lambda: passes.pop(task, None))
            if first:
                fn(grad)

        return all_hook if mode == "all" else any_hook

    return _MultiHandle([t.register_hook(hook_of(i)) for i, t in enumerate(tensors)])


__all__ = [
    "GradientEdge", "Node", "RemovableHandle", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip
