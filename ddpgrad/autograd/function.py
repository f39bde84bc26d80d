"""`Function`: operations whose forward and backward users write themselves.

Source of the behaviour: https://pytorch.org/docs/stable/autograd.html#function and
https://pytorch.org/docs/stable/notes/extending.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from weakref import ref

from .._tensor import Tensor, View, wrap
from ..errors import GraphError
from .accumulate import edge_of, tensor_at
from .grad_mode import mode
from .graph import NO_EDGE, Edge, Node
from .views import check_writable, written


class FunctionCtx:
    """What `forward` and `backward` of a `Function` call `ctx`: what one call remembers.

    needs_input_grad: for each argument of `forward`, whether its gradient is asked for. Any
    other attribute may be set and is found again in `backward`.
    """

    def __init__(self, node: FunctionNode, args: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(isinstance(a, Tensor) and a._requires_grad for a in args)
        self.materialize_grads = True
        self.to_save: tuple[Any, ...] = ()
        self.dirty_tensors: tuple[Tensor, ...] = ()
        self.non_differentiable: tuple[Tensor, ...] = ()
        self._saved: tuple[_Saved | None, ...] | None = ()
        self._node = ref(node)  # weak: the node holds this object

    # -- what users call in forward or setup_context ---------------------------------------

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs, outputs or other tensors for backward; changing them in place is noticed."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}; "
                    "set it as an attribute of ctx"
                )
        self.to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs forward changed in place; they must be returned."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward is given zeros (the default) or None for outputs that no gradient reached."""
        self.materialize_grads = value

    # -- what users call in backward -------------------------------------------------------

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given. `GraphError` when freed, or changed in place since."""
        node = self._node()
        if self._saved is None or node is None:
            raise GraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed): {'the graph is gone' if node is None else node.name()}. Specify "
                "retain_graph=True in the first call of backward() or autograd.grad()."
            )
        return tuple([None if s is None else s.unpack(node, i) for i, s in enumerate(self._saved)])


class FunctionNode(Node):
    """The step of backward that calls the `backward` of a `Function`.

    Attributes that it does not have, such as `saved_tensors`, are those of its `ctx`.
    """

    __slots__ = ("ctx", "places")

    materialize_grads: bool = True
    special = True  # users' backward may return an array that they keep
    function: ClassVar[type[Function]]

    def __init__(self, args: Sequence[Any]) -> None:
        self.places = tuple(i for i, a in enumerate(args) if isinstance(a, Tensor))
        # The edges are taken before forward runs, which may change arguments in place.
        super().__init__(tuple(edge_of(args[i]) for i in self.places), (), None)
        self.ctx = FunctionCtx(self, args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "ctx":
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.ctx, name)

    def apply(self, grad: Any, F: Any) -> list[Any]:
        grads = tuple(grad) if self.outputs > 1 else (grad,)
        on_tensors = any(isinstance(g, Tensor) for g in grads)
        if not on_tensors:
            grads = tuple(None if g is None else wrap(g) for g in grads)
        results = self._checked(self.function.backward(self.ctx, *grads))
        return results if on_tensors else [None if r is None else r._array for r in results]

    def release(self) -> None:
        if self.ctx._saved:
            self.ctx._saved = None

    def _checked(self, results: Any) -> list[Any]:
        """What backward returned, for the tensor arguments only."""
        results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        expected = len(self.ctx.needs_input_grad)
        if len(results) < expected or any(r is not None for r in results[expected:]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {expected}, got "
                f"{len(results)}): one for each argument of forward, None where there is none"
            )
        for i, r in enumerate(results):
            if r is not None and not isinstance(r, Tensor):
                raise RuntimeError(
                    f"function {self.name()} returned {type(r).__name__} as gradient {i}, expected a Tensor or None"
                )
            if r is not None and i not in self.places:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different from None at position {i}, but the "
                    "corresponding forward input was not a Tensor"
                )
        found: list[Any] = []
        for place, (target, nr) in zip(self.places, self.next_functions, strict=True):
            r = results[place]
            if target is None:
                r = None
            elif r is not None:
                shape = target.shape[nr] if target.outputs > 1 else target.shape
                if not _reducible(r._array.shape, shape):
                    raise RuntimeError(
                        f"Function {self.name()} returned an invalid gradient at index {place} - got "
                        f"{list(r._array.shape)} but expected shape compatible with {list(shape)}"
                    )
            found.append(r)
        return found


class _Saved:
    """A saved tensor: its array, version and place in the graph, but not the Tensor itself.

    An output of the function would otherwise keep its node, which keeps the output, alive.
    """

    __slots__ = ("array", "counter", "edge", "version")

    def __init__(self, tensor: Tensor, node: Node) -> None:
        self.array = tensor._array
        self.counter = tensor._versions
        self.version = tensor._versions[0]
        edge = edge_of(tensor)
        # For an output of `node` itself only the number: no cycle.
        self.edge: Edge = (None, edge[1] + 1) if edge[0] is node else edge

    def unpack(self, node: Node, i: int) -> Tensor:
        if self.counter[0] != self.version:
            raise GraphError(
                f"one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"saved tensor {i} of {node.name()} (shape {list(self.array.shape)}) is at version "
                f"{self.counter[0]}; expected version {self.version} instead. Write the operation out of place, or "
                "clone() first."
            )
        target, nr = self.edge
        return tensor_at(self.array, (node, nr - 1) if target is None and nr else self.edge)


def _reducible(shape: Sequence[int], target: Sequence[int]) -> bool:
    """True when broadcasting a tensor of shape `target` gives `shape`."""
    lead = len(shape) - len(target)
    return lead >= 0 and all(n in (1, m) for n, m in zip(target, shape[lead:], strict=True))


class Function:
    """Base of user-defined operations: subclass, write `forward` and `backward`, call `apply`.

    `forward(ctx, *args)`, or `forward(*args)` beside `setup_context(ctx, inputs, output)`, runs
    without recording and returns a Tensor or a tuple. `backward(ctx, *grads)` gets the gradient
    of each output and returns one gradient (or None) for each argument of forward. Written in
    terms of Tensor operations, it can itself be differentiated.
    """

    _node_class: ClassVar[type[FunctionNode]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._node_class = type(f"{cls.__name__}Backward", (FunctionNode,), {"function": cls})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{type(self).__name__} is not made into an object: call {type(self).__name__}.apply(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save for backward, when `forward` does not take `ctx`."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Compute the gradients of the arguments of forward."""
        raise NotImplementedError(
            "You must implement the backward function to use backward with a custom Function."
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run `forward` on `args` and record it."""
        node = cls._node_class(args)
        ctx = node.ctx
        recording = mode.enabled and any(ctx.needs_input_grad)
        previous, mode.enabled = mode.enabled, False
        try:
            if cls.setup_context is Function.setup_context:
                output = cls.forward(ctx, *args)
            else:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
        finally:
            mode.enabled = previous
        outputs = output if isinstance(output, tuple) else (output,)
        joined = _join(node, args, outputs, recording)
        return joined if isinstance(output, tuple) else joined[0]


# The base itself has one too, whose forward says that it must be written.
Function._node_class = type("FunctionBackward", (FunctionNode,), {"function": Function})


def _join(
    node: FunctionNode, args: Sequence[Any], outputs: tuple[Any, ...], recording: bool
) -> tuple[Any, ...]:
    """The outputs of forward as they go to the user: in the graph when `recording`."""
    ctx = node.ctx
    for t in ctx.dirty_tensors:
        if not _among(t, args):
            raise RuntimeError(
                f"{node.name()}: mark_dirty() was given a tensor that is not an argument of forward"
            )
        if not _among(t, outputs):
            raise RuntimeError(
                f"Some elements marked as dirty during the forward method of {node.name()} were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function."
            )
        if recording:
            check_writable(node.name(), t)
        t._versions[0] += 1
    shapes = tuple(o._array.shape if isinstance(o, Tensor) else None for o in outputs)
    dtypes = tuple(o._array.dtype if isinstance(o, Tensor) else None for o in outputs)
    if len(outputs) == 1:
        node.shape, node.dtype = shapes[0], dtypes[0]
    else:
        node.shape, node.dtype, node.outputs = shapes, dtypes, len(outputs)
    node.materialize_grads = ctx.materialize_grads
    joined = tuple(
        _output(node, nr, o, args, recording) if isinstance(o, Tensor) else o for nr, o in enumerate(outputs)
    )
    if recording:
        # An output that is saved is saved as the user gets it.
        given = {id(before): after for before, after in zip(outputs, joined, strict=True)}
        ctx._saved = tuple(None if t is None else _Saved(given.get(id(t), t), node) for t in ctx.to_save)
    ctx.to_save = ctx.dirty_tensors = ctx.non_differentiable = ()
    return joined


def _output(node: FunctionNode, nr: int, output: Tensor, args: Sequence[Any], recording: bool) -> Tensor:
    """Output `nr` as the user gets it."""
    ctx = node.ctx
    constant = output._array.dtype.kind in "biu" or _among(output, ctx.non_differentiable)
    if _among(output, ctx.dirty_tensors):
        if recording and not constant:
            written(output, node, nr)
        return output
    if not recording or constant:
        return output.detach() if _among(output, args) else output
    of = next((a for a in args if isinstance(a, Tensor) and a._versions is output._versions), None)
    out = output
    if of is not None or out._requires_grad:
        # An argument returned as it is, or a view of one: its own tensor, with this node as its history.
        out = output.detach()
        if of is not None:
            base = of if of._view is None else of._view.base
            out._view = View(base, None, base._grad_fn)
    out._grad_fn, out._output_nr, out._requires_grad = node, nr, True
    return out


def _among(tensor: Any, values: Sequence[Any]) -> bool:
    return any(tensor is v for v in values)


# -- backward that cannot be differentiated --------------------------------------------------


class _Refusal(Node):
    """Stands where the second derivative of a `once_differentiable` backward would be."""

    of: str = ""

    def apply(self, grad: Any, F: Any) -> Sequence[Any]:
        raise GraphError(
            f"trying to differentiate twice a function that was marked with @once_differentiable: {self.of}"
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `backward` that is not made of Tensor operations: a second derivative is an error."""

    @functools.wraps(backward)
    def wrapper(ctx: FunctionCtx, *grads: Any) -> Any:
        recording, mode.enabled = mode.enabled, False
        try:
            results = backward(ctx, *grads)
        finally:
            mode.enabled = recording
        if not recording:
            return results
        node = ctx._node()
        edges = [
            *(edge_of(g) for g in grads if isinstance(g, Tensor)),
            *(node.next_functions if node else ()),
        ]
        if all(edge[0] is None for edge in edges):
            return results
        several = isinstance(results, tuple)
        name = backward.__qualname__
        return (
            tuple(_refusing(name, r, edges) for r in results) if several else _refusing(name, results, edges)
        )

    return wrapper


def _refusing(name: str, result: Any, edges: Sequence[Edge]) -> Any:
    if not isinstance(result, Tensor):
        return result
    out = result.detach()
    node = _Refusal(tuple(e for e in edges if e is not NO_EDGE), out._array.shape, out._array.dtype)
    node.of = name
    out._grad_fn, out._requires_grad = node, True
    return out


__all__ = ["Function", "FunctionCtx", "once_differentiable"]
