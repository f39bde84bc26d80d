"""Nodes of what was told to a `__torch_dispatch__`: they keep Tensors of whatever class, and are told in backward too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ...autograd.accumulate import edge_of
from ...autograd.engine import run
from ...autograd.grad_mode import mode
from ...autograd.nodes import Edge, Node
from ...core.dispatching import flat
from ...core.tensor import Tensor, wrap
from ...ops.dispatch.node import OpNode
from ...ops.dispatch.vocabulary import VOCABULARY


class ToldNode(OpNode):
    """The node of an op whose operands and result are kept as Tensors."""

    __slots__ = ()
    tells = True

    def shown(self) -> OpNode:
        if self.__class__ is ToldNode:
            self._name = self.name()
            shown: Any = _shown_as(self._name.rpartition("::")[2])
            self.__class__ = shown
        return self

    def apply(self, grad: Any, F: Any, edges: Sequence[Edge] | None = None) -> Sequence[Any]:
        if isinstance(grad, Tensor) or (
            isinstance(grad, (tuple, list)) and any(isinstance(g, Tensor) for g in grad)
        ):
            return super().apply(grad, VOCABULARY, edges)
        grads = (
            tuple(None if g is None else wrap(g) for g in grad)
            if isinstance(grad, (tuple, list))
            else wrap(grad)
        )
        return [g if g is None else g._array for g in super().apply(grads, VOCABULARY, edges)]

    def replace_output(self, target: Tensor) -> None:
        """What is kept is the output itself, whatever memory it lies in."""

    def _as_tensors(self, kept: tuple[Any, ...], grad: Any) -> tuple[Any, ...]:
        if "out" not in self.op.keep or not mode.enabled:
            return kept
        out = kept[self.op.keep.index("out")]
        if out is None:
            return kept
        out._requires_grad, out._grad_fn, out._output_nr = True, self, 0
        return tuple(out if value is out else value for value in kept)


@cache
def _shown_as(name: str) -> type[ToldNode]:
    """The class that nodes of that name show to users."""
    return type(name, (ToldNode,), {"__slots__": ()})


class RerunNode(Node):
    """The node of what has no rule of its own: the gradients come of computing it again."""

    __slots__ = ("args", "called", "kwargs", "tell", "tensors")
    tells = True
    special = True

    def __init__(
        self, called: str, tell: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """called: the name of what was computed. tell: what gives the gradients, as told."""
        self.tensors = [v for v in flat((*args, *kwargs.values())) if isinstance(v, Tensor)]
        super().__init__(tuple(edge_of(t) for t in self.tensors), (), None)
        Node.any_tells = True
        self.called, self.tell, self.args, self.kwargs = called, tell, args, kwargs

    def name(self) -> str:
        return self.called.title().replace("_", "") + "Backward0"

    def join(self, outs: Sequence[Tensor]) -> None:
        """Let `outs` be what the node has computed."""
        self.outputs = len(outs)
        many = len(outs) > 1
        self.shape = tuple(t._array.shape for t in outs) if many else outs[0]._array.shape
        self.dtype = tuple(t._array.dtype for t in outs) if many else outs[0]._array.dtype
        for nr, t in enumerate(outs):
            t._requires_grad, t._grad_fn, t._output_nr = True, self, nr

    def apply(self, grad: Any, F: Any) -> Sequence[Any]:
        grads = list(grad) if self.outputs > 1 else [grad]
        on_tensors = any(isinstance(g, Tensor) for g in grads)
        if not on_tensors:
            grads = [None if g is None else wrap(g) for g in grads]
        needs = [node is not None for node, _ in self.edges]
        results = iter(self.tell(grads, needs, self.args, self.kwargs))
        found = [next(results) if need else None for need in needs]
        return found if on_tensors else [None if g is None else g._array for g in found]


def gradients(
    compute: Callable[..., Any],
    grads: Sequence[Any],
    needs: Sequence[bool],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[Any]:
    """The gradients of `compute(*args, **kwargs)` in those tensors of its arguments that need one."""
    leaves: list[Tensor] = []
    needed = iter(needs)

    def leaf(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(leaf, value))
        if not isinstance(value, Tensor):
            return value
        if not next(needed):
            return value.detach()
        fresh = VOCABULARY.alias(value) if recording else value.detach().requires_grad_()
        leaves.append(fresh)
        return fresh

    recording, mode.enabled = mode.enabled, True
    try:
        out = compute(*[leaf(v) for v in args], **{k: leaf(v) for k, v in kwargs.items()})
        outs = [
            v
            for v in (out if isinstance(out, (tuple, list)) else (out,))
            if isinstance(v, Tensor) and v._requires_grad
        ]
        roots: list[Edge] = []
        seeds: list[Tensor] = []
        for t, g in zip(outs, grads, strict=False):
            if g is not None:
                roots.append(edge_of(t))
                seeds.append(g)
        wanted = [edge_of(t) for t in leaves]
    finally:
        mode.enabled = recording
    return list(run(roots, seeds, create_graph=recording, inputs=wanted, accumulate=False))
