"""One backward pass: the order in which nodes run, and the gradients that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from ..backend.registry import backend_for
from ..core import spans
from ..core.classes import shown
from ..core.errors import GraphError
from ..core.tensor import Tensor, wrap
from . import anomaly_mode
from .accumulate import AccumulateGrad
from .hooks import call_hooks, call_prehooks, call_tensor_hooks
from .lean_walk import lean_drain
from .nodes import NO_EDGE, Edge, Node


class Walk:
    """One backward pass. `vocabulary`: the ops, or None for kernels on arrays."""

    plain = True  # the lean loop does what this class does

    def __init__(self, vocabulary: Any, retain_graph: bool) -> None:
        self.vocabulary = vocabulary
        self.retain_graph = retain_graph
        self.buffers: dict[Node, Any] = {}  # gradient so far of nodes that wait for more
        self.waiting: dict[Node, int] = {}  # how many contributions a node still waits for
        self.ready: list[tuple[int, Node]] = []
        self.captures: dict[Edge, int] = {}
        self.captured: list[Any] = []
        self.needed: set[Node] | None = None  # nodes that gradients must reach; None for all
        self.stops: set[Node] = set()  # those of them that nothing is needed beyond
        self.roots: set[Node] = set()
        self.cleanups: list[Callable[[], Any]] = []  # called when the pass has ended
        self.callbacks: list[Callable[[], None]] = []  # called when it has ended well
        self.grad_mode = False  # of the thread before the pass, in a replay
        self.lean = False  # while a node without hooks runs, in a pass on arrays that fills all leaves
        self.owned: set[Node] = set()  # leaves' nodes whose buffer is nobody else's: it may be written to

    def run(
        self, roots: Sequence[Edge], grads: Sequence[Tensor], inputs: Sequence[Edge] | None, accumulate: bool
    ) -> list[Tensor | None]:
        nodes = self._count_dependencies(node for node, _ in roots if node is not None)
        if inputs is not None:
            self._restrict(nodes, inputs, accumulate)
        if not roots:
            return [None] * len(inputs or ())
        F = self.vocabulary or backend_for(grads[0]._array)
        seeded = []
        for (node, nr), grad in zip(roots, grads, strict=True):
            if node is None or (self.needed is not None and node not in self.needed):
                continue
            self.add(node, nr, grad if self.vocabulary else grad._array, F, False)
            if node not in seeded:
                seeded.append(node)
        for node in seeded:
            if not self.waiting.get(node):
                self.enqueue(node, F)
        watched = anomaly_mode.state.enabled or spans.detailed
        if self.vocabulary is None and self.needed is None and not watched and self.plain:
            lean_drain(self, F)
        else:
            self.drain(F)
        if accumulate:
            return []
        return [
            g if g is None or isinstance(g, Tensor) else shown(backend_for(g).asarray(g))
            for g in self.captured
        ]

    def end(self, call_back: Callable[[], None]) -> None:
        """All has run: who waits for the end is called."""
        call_back()

    def _count_dependencies(self, stack: Iterable[Node]) -> list[Node]:
        """Count, for each reachable node, the edges that lead to it. Returns the nodes."""
        waiting = self.waiting
        roots = self.roots = set(stack)
        nodes = list(roots)
        for reached in nodes:  # grows while it is walked
            for node, _ in reached.edges:
                if node is None:
                    continue
                if node in waiting:
                    waiting[node] += 1
                else:
                    waiting[node] = 1
                    if node not in roots:
                        nodes.append(node)
        return nodes

    def _restrict(self, nodes: list[Node], inputs: Sequence[Edge], accumulate: bool) -> None:
        """Run only nodes on a way to `inputs`; stop at them."""
        reached = set(nodes)
        wanted = {node for node, _ in inputs if node in reached}
        needed = set(wanted)
        # A node comes after its inputs in sequence, except for the leaves' own nodes.
        for node in sorted(nodes, key=lambda n: n.sequence):
            if any(n in needed for n, _ in node.edges):
                needed.add(node)
        self.needed = needed
        self.stops = {n for n in wanted if not any(m in needed for m, _ in n.edges)}
        if not accumulate:
            self.captures = {}
            for i, edge in enumerate(inputs):
                self.captures.setdefault(edge, i)
            self.captured = [None] * len(inputs)
            self._aliases = [self.captures[edge] for edge in inputs]

    # -- one node ------------------------------------------------------------------------

    def enqueue(self, node: Node, F: Any) -> None:
        """Let `node`, which waits for nothing more, run when its turn comes; a leaf is filled at once."""
        if isinstance(node, AccumulateGrad):
            self.leaf(node, F)
        else:
            heappush(self.ready, (-node.sequence, node))

    def drain(self, F: Any) -> None:
        """Run nodes, latest first, until none is left."""
        while self.ready:
            self.step(heappop(self.ready)[1], F)

    def step(self, node: Node, F: Any) -> None:
        """Run one node, with all that can happen on the way."""
        grad = self.buffers.pop(node, None)
        if self.vocabulary is None and grad is not None:
            grad, F = _on_its_backend(grad, F)
        if node._tensor_hooks is not None:
            grad = call_tensor_hooks(node, grad, F, self.vocabulary is not None)
        if self.captures:
            self._capture(node, grad)
        if node in self.stops and self.captures:
            return
        if node._prehooks is not None:
            grad = call_prehooks(node, grad, F, self.vocabulary is not None)
        if node in self.stops:
            return
        if grad is None and not node.sees_undefined:
            results: Sequence[Any] = (None,) * len(node.edges)
        else:
            if node.outputs > 1:
                grad = self._materialize(node, grad or [None] * node.outputs, F)
            elif grad is None:
                (grad,) = self._materialize(node, [None], F)
            began = spans.now() if spans.detailed else 0.0
            results = (
                anomaly_mode.apply(node, grad, F) if anomaly_mode.state.enabled else self.apply(node, grad, F)
            )
            if began:
                spans.tell_detail("node", node.name(), began)
        if not self.retain_graph:
            node.release()
        if node._hooks is not None:
            results = call_hooks(node, results, grad, F, self.vocabulary is not None)
        for (target, nr), g in zip(node.edges, results, strict=True):
            if target is None or (self.needed is not None and target not in self.needed):
                continue
            if g is not None:
                # A node that is special may return what others have too, or has shown it to hooks.
                self.add(
                    target, nr, g, F, not node.special and g is not grad and getattr(g, "base", None) is None
                )
            left = self.waiting[target] = self.waiting[target] - 1
            if left == 0:
                self.enqueue(target, F)

    def apply(self, node: Node, grad: Any, F: Any) -> Sequence[Any]:
        """What the node computes, for edges on a way to what is wanted."""
        needed = self.needed
        if needed is None or not node.prunes or all(n is None or n in needed for n, _ in node.edges):
            return node.apply(grad, F)
        return node.apply(grad, F, tuple([e if e[0] in needed else NO_EDGE for e in node.edges]))  # type: ignore[call-arg]

    def leaf(self, node: AccumulateGrad, F: Any) -> None:
        """Fill the leaf of `node`, which waits for nothing more."""
        grad = self.buffers.pop(node, None)
        leaf = node.variable
        if self.vocabulary is None and grad is not None and grad.__class__ is not F.array_type:
            grad, F = _on_its_backend(grad, F)
        if leaf._hooks is not None:
            grad = call_tensor_hooks(node, grad, F, self.vocabulary is not None)
        if self.captures:
            self._capture(node, grad)
            return
        if node._prehooks is not None:
            grad = call_prehooks(node, grad, F, self.vocabulary is not None)
        if not leaf._requires_grad:
            return
        if grad is None:
            pass
        elif self.vocabulary is not None:
            node.apply_tensor(grad, F)
        else:
            # What hooks were shown, they may have kept.
            owned = node in self.owned and leaf._hooks is None and node._prehooks is None
            if not owned and node.bucket is None and leaf._grad is None:
                grad = F.clone(grad)
            node.apply(grad, F)
        if leaf._post_accumulate_hooks is not None:
            for hook in list(leaf._post_accumulate_hooks.values()):
                if hook(leaf) is not None:
                    raise RuntimeError("Tensor post accumulate grad hooks should return None.")
        # Without a gradient, who waits for this leaf to be filled would be told something wrong.
        if grad is not None:
            if node._hooks is not None:
                call_hooks(node, (), grad, F, self.vocabulary is not None)
            if node.filled is not None:
                node.filled()

    def add(self, node: Node, nr: int, grad: Any, F: Any, fresh: bool) -> None:
        """Add `grad` to what output `nr` of `node` has, in the output's shape and dtype.

        fresh: `grad` is an array that nobody else has.
        """
        many = node.outputs > 1
        shape, dtype = (node.shape[nr], node.dtype[nr]) if many else (node.shape, node.dtype)
        on_arrays = self.vocabulary is None
        array = grad if on_arrays else grad._array
        if on_arrays and array.__class__ is not F.array_type:
            F = backend_for(array)  # a scalar of NumPy's, or what has crossed into a vmap
        if array.shape != shape:
            grad = F.sum_to(grad, shape)
            array = grad if on_arrays else grad._array
            fresh = True
        if array.dtype is not dtype and dtype is not None and array.dtype != dtype:
            grad = F.cast(grad, dtype)
            fresh = True
        buffers = self.buffers
        if many:
            slots = buffers.setdefault(node, [None] * node.outputs)
            if on_arrays:
                grad, _ = _on_its_backend(grad, F)  # a sum of all elements is a NumPy scalar
            slots[nr] = grad if slots[nr] is None else slots[nr] + grad
            return
        if node in buffers:
            grad = buffers[node] + grad
            fresh = True
        buffers[node] = grad
        if fresh and on_arrays and node.__class__ is AccumulateGrad:
            self.owned.add(node)

    def _materialize(self, node: Node, grads: list[Any], F: Any) -> tuple[Any, ...]:
        """Zeros for the outputs of a node that no gradient reached."""
        if not getattr(node, "materialize_grads", True):
            return tuple(grads)
        some = next((g for g in grads if g is not None), None)
        if some is None:
            some = _array_behind(node) if self.vocabulary is None else wrap(_array_behind(node))
        shapes, dtypes = (node.shape, node.dtype) if node.outputs > 1 else ((node.shape,), (node.dtype,))
        return tuple(
            F.cast(F.new_zeros(some, shapes[i]), dtypes[i]) if g is None and shapes[i] is not None else g
            for i, g in enumerate(grads)
        )

    def _capture(self, node: Node, grad: Any) -> None:
        for nr in range(node.outputs):
            if (node, nr) in self.captures:
                g = grad[nr] if node.outputs > 1 and grad is not None else grad
                for i, first in enumerate(self._aliases):
                    if first == self.captures[node, nr]:
                        self.captured[i] = g


def _array_behind(node: Node) -> Any:
    """An array of a leaf that `node` leads to: says which device its gradients are on."""
    order = [node]
    for reached in order:  # grows while it is walked
        if isinstance(reached, AccumulateGrad):
            return reached.variable._array
        order += [target for target, _ in reached.edges if target is not None]
    raise GraphError(f"{node.name()} leads to no leaf: no gradient can be made up for it; pass one")


def like_leaf_behind(node: Node, shape: Sequence[int], value: float, dtype: Any) -> Tensor:
    """A tensor of `value` on the device of a leaf that `node` leads to."""
    array = _array_behind(node)
    return wrap((backend_for(array).new_zeros(array, shape) + value).astype(dtype))


def _on_its_backend(grad: Any, F: Any) -> tuple[Any, Any]:
    """NumPy's scalars as arrays, and the kernels of the device that `grad` is on."""
    some = next(g for g in grad if g is not None) if isinstance(grad, list) else grad
    if some.__class__ is F.array_type:
        return grad, F
    F = backend_for(some)
    return (grad if isinstance(grad, list) else F.asarray(grad)), F
