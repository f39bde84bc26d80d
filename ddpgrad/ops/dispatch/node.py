"""The graph node of an op, and the values that it saves for backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.accumulate import edge_of, tensor_at
from ...autograd.nodes import NO_EDGE, Edge, Node, next_sequence, observers
from ...core.dispatching import telling
from ...core.errors import GraphError, NotMapped
from ...core.modes import mapping
from ...core.tensor import Tensor
from ...core.upcalls import for_each_example, saved_attribute, summed

if TYPE_CHECKING:
    from .declare import Op


_FLOAT32 = np.dtype(np.float32)


class OpNode(Node):
    """Runs the gradient rules of one op. Keeps raw arrays, not Tensors: no cycles.

    A node that a user looks at becomes one of a subclass of its own (`node_type`), named as PyTorch
    names it. Others stay as they are: CPython reads the attributes of one class faster than of many.
    """

    __slots__ = ("_counters", "_edges_of_kept", "_kept", "_versions", "op")

    prunes = True
    materialize_grads = False  # a rule of several outputs sees None for those that no gradient reached

    op: Op
    _kept: tuple[Any, ...] | None
    _counters: Sequence[list[int]]
    _versions: Sequence[int]
    _name: str | None = None  # once it was looked at, or what it depends on is freed

    def __getattr__(self, name: str) -> Any:
        return saved_attribute(self, name)

    def shown(self) -> OpNode:
        if self.__class__ is OpNode:
            self._name = self.name()
            shown: Any = node_type(self._name.rpartition("::")[2])
            self.__class__ = shown
        return self

    def name(self) -> str:
        """By the op; where in PyTorch that is several overloads, what was kept tells which."""
        if self._name is not None:
            return self._name
        say = self.op.grad_name
        if isinstance(say, str):
            return say
        kept = () if self._kept is None else zip(self.op.keep, self._kept, strict=True)
        known = {"shape": self.shape, **dict(kept)}
        return say(*[known[name] for name in self.op.named_by])

    def apply(self, grad: Any, F: Any, edges: Sequence[Edge] | None = None) -> Sequence[Any]:
        """As `Node.apply`. edges: the node's own, but for those that no gradient is wanted for."""
        kept = self._kept
        if kept is None:
            raise GraphError(
                f"Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed): {self.name()} has freed what it saved. Specify retain_graph=True in the first call of backward() or autograd.grad()."
            )
        counters = self._counters
        if counters:
            versions = self._versions
            if counters[0][0] != versions[0]:
                raise self._modified(0)
            for i in range(1, len(counters)):
                if counters[i][0] != versions[i]:
                    raise self._modified(i)
        if (
            grad.__class__ is Tensor
            or grad.__class__ is tuple
            or (telling and isinstance(grad, Tensor))  # of a class of its own
        ):
            kept = self._as_tensors(kept, grad)
        op = self.op
        dtype, rule = self.dtype, op.backward
        if dtype is not _FLOAT32 and op.holomorphic:
            first = dtype[0] if dtype.__class__ is tuple else dtype  # several outputs have a dtype each
            if first.kind == "c":
                rule = partial(_conjugated, rule)
        if edges is None:
            edges = self.edges
        try:
            return rule(F, grad, kept, edges)
        except NotMapped:
            return for_each_example(rule, F, grad, kept, edges)

    def entry(self, grad: Any, F: Any, edges: Sequence[Edge]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        op, dtype = self.op, self.dtype
        first = dtype[0] if dtype.__class__ is tuple else dtype
        if op.holomorphic and first.kind == "c":
            return _conjugated, (op.backward, F, grad, self._kept, edges)
        return op.backward, (F, grad, self._kept, edges)

    def release(self) -> None:
        op = self.op  # what keeps only shapes and numbers of dimensions can run again, as in PyTorch
        if self._counters or op.keeps_values or (op.watched and any(map(_has_arrays, self._kept or ()))):
            self.forget()

    def forget(self) -> None:
        """Drop what was kept."""
        if self.op.named_by_kept:
            self._name = self.name()
        self._kept = None

    def replace_output(self, target: Tensor) -> None:
        """An in-place op has put the output into `target`'s memory: keep that, not the temporary."""
        keep = self.op.keep
        if self._kept is None or "out" not in keep or self._kept[keep.index("out")] is None:
            return
        kept = list(self._kept)
        kept[keep.index("out")] = target._array
        self._kept = tuple(kept)
        self._counters = (*self._counters[:-1], target._versions)
        self._versions = (*self._versions[:-1], target._versions[0])

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The raw values kept for backward, in the order of the op's `keep`."""
        return self._kept or ()

    def guard(self, tensors: Sequence[Tensor]) -> None:
        """Refuse to run after one of these was written to, which were not kept."""
        self._counters = (*self._counters, *[t._versions for t in tensors])
        self._versions = (*self._versions, *[t._versions[0] for t in tensors])

    def _as_tensors(self, kept: tuple[Any, ...], grad: Any) -> tuple[Any, ...]:
        """What was kept, as Tensors joined to the graph, so that rules can be differentiated."""
        if isinstance(grad, tuple) and not any(isinstance(g, Tensor) for g in grad):
            return kept
        values = list(kept)
        for i, which in self.op.kept_tensors:
            if hasattr(values[i], "dtype"):
                values[i] = tensor_at(values[i], self.edges[which])
            elif isinstance(values[i], list):
                values[i] = [tensor_at(v, e) for v, e in zip(values[i], self.edges, strict=True)]
        for i, name in enumerate(self.op.keep):
            if name == "out":
                values[i] = tensor_at(values[i], (self, 0))
            elif name in self.op.extras and hasattr(values[i], "dtype"):
                nr = self.op.extras.index(name) + 1
                values[i] = tensor_at(values[i], (self, nr) if nr < self.outputs else NO_EDGE)
        return tuple(values)

    def _modified(self, i: int) -> GraphError:
        op, kept = self.op, self._kept or ()
        if op.sequence:
            names = [f"{op.params[0]}[{k}]" for k in range(len(self.edges))]
        else:
            # Numbers have no version.
            inputs = op.plans[-1 if op.one_plan else _bits(self.edges)].inputs
            names = [n for n in (op.params[k] for k in inputs) if not _is_number(kept[op.keep.index(n)])]
            names += [op.params[k] for k in op.watched]
            names += ["the output"] * ("out" in op.keep)
        what = names[i] if i < len(names) else "an argument"
        return GraphError(
            f"one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"{what} of {op.name} ({self.name()}, output shape {list(self.shape)}) is at version {self._counters[i][0]}; "
            f"expected version {self._versions[i]} instead. Write the operation out of place, or clone() first."
        )


@cache
def node_type(name: str) -> type[OpNode]:
    """The class that nodes of that name show to users."""
    return type(name, (OpNode,), {"__slots__": ()})


def node_name(op: str) -> str:
    """What PyTorch calls the node of the op of that name."""
    return op.title().replace("_", "") + "Backward0"


new = object.__new__


def _conj(F: Any, g: Any) -> Any:
    """The complex conjugate of a gradient: None, one, or as many as there are."""
    if isinstance(g, (tuple, list)):
        return tuple([_conj(F, part) for part in g])
    return None if g is None else F.conj(g)


def _conjugated(
    backward: Callable[..., Sequence[Any]], F: Any, grad: Any, kept: Any, edges: Any
) -> Sequence[Any]:
    """The rules of a holomorphic function, which are written for real numbers, on complex ones."""
    return [_conj(F, g) for g in backward(F, _conj(F, grad), kept, edges)]


def _bits(edges: Sequence[Edge]) -> int:
    """Which edges need a gradient, as a binary number: the place of the plan."""
    bits, place = 0, 1
    for edge in edges:
        if edge[0] is not None:
            bits += place
        place += place
    return bits


def guarded(out: Tensor, *tensors: Tensor | None) -> Tensor:
    """`out`, through which no gradient goes once one of `tensors` was written to.

    For functions made of ops that do not keep these, and that in PyTorch are one op that does.
    """
    node = out._grad_fn
    if isinstance(node, OpNode):
        node.guard([t for t in tensors if t is not None])
    return out


def _has_arrays(kept: Any) -> bool:
    """Whether an argument such as an index holds arrays."""
    if isinstance(kept, (tuple, list)):
        return any(map(_has_arrays, kept))
    return hasattr(kept, "dtype")


def _is_number(kept: Any) -> bool:
    return isinstance(kept, (bool, int, float, complex))


def _shape_of(argument: Any) -> Any:
    # A number has no dimensions.
    return [a.shape for a in argument] if isinstance(argument, list) else getattr(argument, "shape", ())


def record(
    op: Op,
    given: Sequence[Any],
    raw: tuple[Any, ...],
    out: Tensor,
    extras: Sequence[Any] = (),
    outs: Sequence[Tensor] | None = None,
    watched: Sequence[list[int]] = (),
) -> OpNode:
    """Join `out` (or, for several differentiable outputs, `outs`) to the graph.

    given: the tensor arguments, where None and numbers need no gradient; raw: all arguments
    as the kernel had them. watched: version counters of what is kept besides, such as indices.
    """
    node = new(OpNode)
    node.op = op
    node.edges = tuple(
        [
            NO_EDGE
            if not isinstance(t, Tensor) or not t._requires_grad
            else (t._grad_fn, t._output_nr)
            if t._grad_fn is not None and t._view is None  # the usual case of `edge_of`
            else edge_of(t)
            for t in given
        ]
    )
    array = out._array
    if mapping and hasattr(array, "levels"):  # those of a vmap
        node.edges = tuple([
            edge if edge is NO_EDGE or t._array.__class__ is array.__class__ else summed(edge, t._array, array)
            for t, edge in zip(given, node.edges, strict=True)
        ])  # fmt: skip
    node.shape = array.shape
    node.dtype = array.dtype
    node.sequence = next_sequence()
    if op.shapes:
        extras = (*extras, *[_shape_of(raw[i]) for i in op.shapes])
    if op.keep:
        plan = op.plans[-1] if op.one_plan else op.plans[_bits(node.edges)]
        node._kept = plan.pick((*raw, array, *extras, None))
        if op.sequence:
            counters = [t._versions for t in given] if plan.inputs else []
        else:
            counters = [t._versions for i in plan.given if isinstance(t := given[i], Tensor)]
        counters += watched
        if plan.guards_out:
            counters.append(out._versions)
        if outs is not None:
            counters += [t._versions for t, name in zip(outs[1:], op.extras, strict=False) if name in op.keep]
        node._counters = tuple(counters)
        node._versions = tuple([c[0] for c in counters])
    else:
        node._kept = node._counters = node._versions = ()
    if outs is None:
        out._requires_grad = True
        out._grad_fn = node
        if observers:
            node.observed()
        return node
    node.outputs = len(outs)
    node.special = True
    node.shape = tuple(t._array.shape for t in outs)
    node.dtype = tuple(t._array.dtype for t in outs)
    for nr, t in enumerate(outs):
        t._requires_grad, t._grad_fn, t._output_nr = True, node, nr
    if observers:
        node.observed()
    return node
