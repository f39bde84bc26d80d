"""The engine: walks the graph from the roots, latest operation first, and fills the leaves.

One walk runs in one of two modes. Ordinarily the gradients are raw arrays and the gradient
rules run on the kernels. With `create_graph` they are Tensors, the same rules run on the
ops, and what they compute can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..core import spans
from ..core.dispatching import is_told, telling
from ..core.errors import out_of_memory
from ..core.modes import crossed, mapping
from ..core.taping import Tape, taping
from ..core.tensor import Tensor
from ..core.upcalls import run_node, tensor_vocabulary
from .accumulate import AccumulateGrad
from .grad_mode import mode
from .hooks import call_hooks, call_prehooks
from .nodes import Edge, Node
from .passes import (
    PASSES_A_THREAD,
    call_back,
    current_pass,
    depth,
    enter,
    in_new_thread,
    leave,
    queue_callback,
    running_here,
)
from .saved import hooks_entered, leave_hooks
from .walk import Walk


def run(
    roots: Sequence[Edge],
    grads: Sequence[Tensor],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    inputs: Sequence[Edge] | None = None,
    accumulate: bool = True,
) -> list[Tensor | None]:
    """Propagate `grads` from `roots`.

    inputs: edges whose gradients are wanted; only the nodes on the way there run. With
    `accumulate` leaves among them are filled; otherwise the gradients are returned in the
    order of `inputs`, None where the roots do not depend on one.
    """
    arguments = roots, grads, retain_graph, create_graph, inputs, accumulate
    if depth() and not depth() % PASSES_A_THREAD:
        return in_new_thread(partial(_run, *arguments), depth())
    return _run(*arguments)


def _run(
    roots: Sequence[Edge],
    grads: Sequence[Tensor],
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[Edge] | None,
    accumulate: bool,
) -> list[Tensor | None]:
    previous, mode.enabled = mode.enabled, create_graph
    on_tensors = create_graph or (telling and _wants_tensors(roots, grads))
    vocabulary = tensor_vocabulary() if on_tensors else None
    looking = crossed[:]  # the walk may lead into a vmap
    mapping.extend(looking)
    walk = (
        Walk(vocabulary, retain_graph)
        if taping.now is None
        else _on_tape(vocabulary, retain_graph, taping.now)
    )
    enter(walk)
    entered = hooks_entered()
    began = spans.now() if spans.recorders and depth() == 1 else 0.0
    try:
        found = walk.run(roots, grads, inputs, accumulate)
        walk.end(call_back)
        return found
    except MemoryError as error:
        raise out_of_memory("backward", error) from error
    finally:
        mode.enabled = previous
        for look in looking:
            mapping.remove(look)
        leave_hooks(entered)  # what an unpack hook has entered holds no longer than the pass, as in PyTorch
        leave()
        if began:
            spans.tell("backward", "backward", began)


def _wants_tensors(roots: Sequence[Edge], grads: Sequence[Tensor]) -> bool:
    """Whether somebody is told of the ops of this pass: a mode, or tensors of a class that the graph leads to."""
    if is_told(grads, {}):
        return True
    if not Node.any_tells:
        return False
    nodes = list(dict.fromkeys(node for node, _ in roots if node is not None))
    seen = set(nodes)
    for node in nodes:  # grows while it is walked
        if node.tells:
            return True
        for below, _ in node.edges:
            if below is not None and below not in seen:
                seen.add(below)
                nodes.append(below)
    return False


def _on_tape(vocabulary: Any, retain_graph: bool, tape: Tape) -> Walk:
    from .taped_walk import TapedWalk  # here, as few programs record

    return TapedWalk(vocabulary, retain_graph, tape)


def running() -> bool:
    """True within a backward pass of this thread."""
    return depth() > 0


def queue_cleanup(cleanup: Callable[[], Any]) -> None:
    """Call `cleanup` when the backward pass that is running now has ended, well or not."""
    current_pass().cleanups.append(cleanup)


def will_execute(node: Node | None) -> bool:
    """Whether the backward pass that is running now runs `node`, or has run it."""
    walk = current_pass()
    if walk.needed is not None:
        return node in walk.needed
    return node in walk.waiting or node in walk.roots


def is_checkpoint_valid() -> bool:
    """False within a backward pass that was given `inputs`, or was started by `grad`."""
    return all(walk.needed is None for walk in running_here.walks)


@run_node.register
def _call(node: Node, grads: Sequence[Any]) -> Any:
    """What `node` computes from `grads`, with its hooks: a Tensor, or a tuple of them."""
    if len(grads) != node.outputs:
        raise TypeError(f"{node.name()} expected {node.outputs} arguments, got {len(grads)} instead")
    F = tensor_vocabulary()
    grad: Any = list(grads) if node.outputs > 1 else grads[0]
    if node._prehooks is not None:
        grad = call_prehooks(node, grad, F, True)
    if isinstance(node, AccumulateGrad):
        node.apply_tensor(grad, F)
        return None
    results: Sequence[Any] = node.apply(tuple(grad) if node.outputs > 1 else grad, F)
    if node._hooks is not None:
        results = call_hooks(node, results, grad, F, True)
    return results[0] if len(results) == 1 else tuple(results)


__all__ = [
    "current_pass", "is_checkpoint_valid", "queue_callback", "queue_cleanup", "run", "running", "will_execute",
]  # fmt: skip
