"""A backward pass while its thread records a step on a tape, and what a replay does of it.

The tape has the gradient rules and sums of the pass in their order, so that a replay needs no graph. What is left of the pass is
its beginning, the filling of leaves, where hooks and the reducer are called as always, and its end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from ..backend.registry import backend_of
from ..core.modes import mode
from ..core.taping import Tape
from ..core.tensor import Tensor
from .accumulate import AccumulateGrad
from .nodes import NO_EDGE, Edge, Node
from .passes import call_back, current_pass, enter, leave
from .walk import Walk

_NOBODY = Node((), (), None)
"""Stands for a node that needs a gradient, of which a rule need not know more."""


class TapedWalk(Walk):
    """A `Walk` that tells a tape what it computes."""

    plain = False

    def __init__(self, vocabulary: Any, retain_graph: bool, tape: Tape) -> None:
        super().__init__(vocabulary, retain_graph)
        self._tape, self._fills_all = tape, False

    def run(
        self, roots: Sequence[Edge], grads: Sequence[Tensor], inputs: Sequence[Edge] | None, accumulate: bool
    ) -> list[Tensor | None]:
        self._fills_all = inputs is None
        return super().run(roots, grads, inputs, accumulate)

    def _count_dependencies(self, stack: Any) -> list[Node]:
        nodes = super()._count_dependencies(stack)
        # Leaves of one gradient: the rule that makes it may ask for their memory.
        leaves = tuple(n for n in nodes if self._is_alone(n)) if self._fills_all else ()
        self._tape.emit(begin, (leaves,), None)
        return nodes

    def _is_alone(self, node: Node) -> bool:
        """Whether a node is that of a leaf from before the step, at which one gradient arrives."""
        return (
            isinstance(node, AccumulateGrad)
            and self.waiting.get(node) == 1
            and self._tape.knows(node.variable)
        )

    def apply(self, node: Node, grad: Any, F: Any) -> Any:
        """Run a node: its rule is one entry; of nodes of other kinds the ops that they run are recorded."""
        if self.vocabulary is not None:
            return super().apply(node, grad, F)
        entry = node.entry(grad, F, tuple([self._seen(node, edge) for edge in node.edges]))
        return node.apply(grad, F) if entry is None else self._tape.run(*entry)

    def end(self, call_back: Callable[[], None]) -> None:
        self._tape.event(end, (), call_back)

    def _seen(self, node: Node, edge: Edge) -> Edge:
        """An edge as replays see it."""
        target = edge[0]
        if target is None:
            return NO_EDGE
        return edge if self._fills_all and not node.special and self._is_alone(target) else (_NOBODY, 0)

    def add(self, node: Node, nr: int, grad: Any, F: Any, fresh: bool) -> None:
        if self.vocabulary is not None:
            super().add(node, nr, grad, F, fresh)
            return
        many = node.outputs > 1
        shape, dtype = (node.shape[nr], node.dtype[nr]) if many else (node.shape, node.dtype)
        if grad.shape != shape:
            grad, fresh = self._tape.run(F.sum_to, (grad, shape)), True
        if dtype is not None and grad.dtype != dtype:
            grad, fresh = self._tape.run(F.cast, (grad, dtype)), True
        slots: Any = self.buffers.setdefault(node, [None] * node.outputs) if many else self.buffers
        place: Any = nr if many else node
        before = slots[nr] if many else slots.get(node)
        if before is not None:
            grad, fresh = self._tape.run(operator.add, (before, grad)), True
        slots[place] = grad
        if fresh and node.__class__ is AccumulateGrad:
            self.owned.add(node)

    def leaf(self, node: AccumulateGrad, F: Any) -> None:
        if self.captures:
            super().leaf(node, F)
            return
        if self.vocabulary is not None:
            self._tape.fail("backward(create_graph=True) fills gradients")
            super().leaf(node, F)
            return
        if not self._tape.knows(node.variable):
            self._leaf_of_the_step(node, F)
            return
        self._tape.fills(node.variable)
        args = (node, self.buffers.get(node), node in self.owned)
        self._tape.event(fill, args, lambda: super(TapedWalk, self).leaf(node, F))

    def _leaf_of_the_step(self, node: AccumulateGrad, F: Any) -> None:
        """Fill a leaf that the step has made, whose gradient is one more array of it."""
        grad = self.buffers.get(node)
        if node.variable._grad is not None:
            self._tape.fail("gradients of a tensor that the step makes add up")
        elif grad is not None and node not in self.owned:
            self.buffers[node] = self._tape.run(F.clone, (grad,))
            self.owned.add(node)
        super().leaf(node, F)


# -- replays -------------------------------------------------------------------------------------


def begin(leaves: tuple[AccumulateGrad, ...]) -> None:
    """A pass begins. leaves: those that one gradient arrives at."""
    walk = Walk(None, False)
    walk.lean = True
    walk.waiting |= dict.fromkeys(leaves, 1)
    walk.grad_mode, mode.enabled = mode.enabled, False
    enter(walk)


def fill(node: AccumulateGrad, grad: Any, owned: bool) -> None:
    """A gradient has arrived, None if it is undefined. owned: its array is nobody else's."""
    leaf = node.variable
    if (
        owned
        and leaf._requires_grad
        and node._hooks is node._prehooks is leaf._hooks is leaf._post_accumulate_hooks is None
    ):
        node.apply(grad, backend_of("cpu"))  # lean form of `Walk.leaf`
        if node.filled is not None:
            node.filled()
        return
    walk = current_pass()
    if grad is not None:
        walk.buffers[node] = grad
        if owned:
            walk.owned.add(node)
    walk.leaf(node, backend_of("cpu"))


def end() -> None:
    """The pass ends."""
    call_back()
    mode.enabled = leave().grad_mode
