"""`Function`: operations whose forward and backward users write themselves.

Source of the behaviour: https://pytorch.org/docs/stable/autograd.html#function and
https://pytorch.org/docs/stable/notes/extending.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..errors import GraphError
from ..tensor import Tensor, View, wrap
from .accumulate import edge_of, tensor_at
from .grad_mode import mode
from .graph import NO_EDGE, Edge, Node
from .views import check_writable, written


class FunctionCtx(Node):
    """What `forward` and `backward` of a `Function` call `ctx`: the node, and what it remembers.

    needs_input_grad: for each argument of `forward`, whether its gradient is asked for. Any
    other attribute may be set and is found again in `backward`.
    """

    lends = True
    function: ClassVar[type[Function]]
    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads: bool = True
    _to_save: tuple[Any, ...] = ()
    _saved: tuple[_Saved | None, ...] | None = ()
    _dirty: tuple[Tensor, ...] = ()
    _non_differentiable: tuple[Tensor, ...] = ()
    _places: tuple[int, ...] = ()  # which arguments are tensors

    def __init__(self, args: Sequence[Any]) -> None:
        self._places = tuple(i for i, a in enumerate(args) if isinstance(a, Tensor))
        super().__init__(tuple(edge_of(args[i]) for i in self._places), (), None)
        self.needs_input_grad = tuple(isinstance(a, Tensor) and a._requires_grad for a in args)

    # -- what users call in forward or setup_context ---------------------------------------

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs, outputs or other tensors for backward; changing them in place is noticed."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}; "
                    "set it as an attribute of ctx"
                )
        self._to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs forward changed in place; they must be returned."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward is given zeros (the default) or None for outputs that no gradient reached."""
        self.materialize_grads = value

    # -- what users call in backward -------------------------------------------------------

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given. `GraphError` when freed, or changed in place since."""
        if self._saved is None:
            raise GraphError(
                f"Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed): {self.name()}. Specify retain_graph=True in the first call of backward() or "
                "autograd.grad()."
            )
        return tuple([None if s is None else s.unpack(self, i) for i, s in enumerate(self._saved)])

    def name(self) -> str:
        return f"{self.function.__name__}Backward"

    # -- what the engine calls ---------------------------------------------------------------

    def apply(self, grad: Any, F: Any) -> list[Any]:
        grads = tuple(grad) if self.outputs > 1 else (grad,)
        on_tensors = any(isinstance(g, Tensor) for g in grads)
        if not on_tensors:
            grads = tuple(None if g is None else wrap(g) for g in grads)
        results = self.function.backward(self, *grads)
        return [
            None if r is None else r if on_tensors else r._array for r in self._checked(results)
        ]

    def release(self) -> None:
        if self._saved:
            self._saved = None

    def _checked(self, results: Any) -> list[Tensor | None]:
        """What backward returned, for the tensor arguments only."""
        results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        expected = len(self.needs_input_grad)
        if len(results) < expected or any(r is not None for r in results[expected:]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {expected}, got "
                f"{len(results)}): one for each argument of forward, None where there is none"
            )
        for i, r in enumerate(results):
            if r is not None and not isinstance(r, Tensor):
                raise TypeError(
                    f"function {self.name()} returned {type(r).__name__} as gradient {i}, expected a Tensor or None"
                )
            if r is not None and i not in self._places:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different from None at position {i}, but the "
                    "corresponding forward input was not a Tensor"
                )
        found: list[Tensor | None] = []
        for place, (target, nr) in zip(self._places, self.next_functions, strict=True):
            r = results[place]
            if r is None or target is None:
                found.append(None)
                continue
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

    _ctx_class: ClassVar[type[FunctionCtx]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._ctx_class = type(f"{cls.__name__}Backward", (FunctionCtx,), {"function": cls})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"{type(self).__name__} is not made into an object: call {type(self).__name__}.apply(...)")

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
        raise NotImplementedError("You must implement the backward function to use backward with a custom Function.")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run `forward` on `args` and record it."""
        ctx = cls._ctx_class(args)
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
        joined = _join(ctx, args, outputs, recording)
        return joined if isinstance(output, tuple) else joined[0]


def _join(ctx: FunctionCtx, args: Sequence[Any], outputs: tuple[Any, ...], recording: bool) -> tuple[Any, ...]:
    """The outputs of forward as they go to the user: in the graph of `ctx` when `recording`."""
    tensors = [o for o in outputs if isinstance(o, Tensor)]
    for t in ctx._dirty:
        if not any(t is a for a in args):
            raise RuntimeError(f"{ctx.name()}: mark_dirty() was given a tensor that is not an argument of forward")
        if not any(t is o for o in tensors):
            raise RuntimeError(
                f"Some elements marked as dirty during the forward method of {ctx.name()} were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function."
            )
        if recording:
            check_writable(ctx.name(), t)
        t._versions[0] += 1
    ctx.outputs = len(outputs)
    shapes = tuple(o._array.shape if isinstance(o, Tensor) else None for o in outputs)
    dtypes = tuple(o._array.dtype if isinstance(o, Tensor) else None for o in outputs)
    ctx.shape, ctx.dtype = (shapes, dtypes) if len(outputs) > 1 else (shapes[0], dtypes[0])
    joined = tuple(
        _output(ctx, nr, o, args, recording) if isinstance(o, Tensor) else o for nr, o in enumerate(outputs)
    )
    if recording:
        # An output that is saved is saved as the user gets it.
        given = {id(before): after for before, after in zip(outputs, joined, strict=True)}
        ctx._saved = tuple(None if t is None else _Saved(given.get(id(t), t), ctx) for t in ctx._to_save)
    ctx._to_save = ctx._dirty = ctx._non_differentiable = ()
    return joined


def _output(ctx: FunctionCtx, nr: int, output: Tensor, args: Sequence[Any], recording: bool) -> Tensor:
    """Output `nr` as the user gets it."""
    if any(output is t for t in ctx._dirty):
        if recording and not any(output is t for t in ctx._non_differentiable):
            written(output, ctx, nr)
        return output
    inputs = [a for a in args if isinstance(a, Tensor)]
    of = next((a for a in inputs if output is a or output._versions is a._versions), None)
    constant = output._array.dtype.kind in "biu" or any(output is t for t in ctx._non_differentiable)
    if not recording or constant:
        return output.detach() if output is of else output
    out = output
    if of is not None or out._requires_grad:
        # An input returned as it is, or a view of one: its own tensor, with this node as its history.
        out = output.detach()
        if of is not None:
            base = of if of._view is None else of._view.base
            out._view = View(base, None, base._grad_fn)
    out._grad_fn, out._output_nr, out._requires_grad = ctx, nr, True
    return out


# -- backward that cannot be differentiated --------------------------------------------------


class _Refusal(Node):
    """Stands where the second derivative of a `once_differentiable` backward would be."""

    def apply(self, grad: Any, F: Any) -> Sequence[Any]:
        raise GraphError(
            f"trying to differentiate twice a function that was marked with @once_differentiable: {self.of}"
        )

    of: str = ""


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
        edges = [*(edge_of(g) for g in grads if isinstance(g, Tensor)), *ctx.next_functions]
        if all(edge[0] is None for edge in edges):
            return results
        several = isinstance(results, tuple)
        return tuple(_refusing(ctx, r, edges) for r in results) if several else _refusing(ctx, results, edges)

    return wrapper


def _refusing(ctx: FunctionCtx, result: Any, edges: Sequence[Edge]) -> Any:
    if not isinstance(result, Tensor):
        return result
    out = result.detach()
    node = _Refusal(tuple(e for e in edges if e is not NO_EDGE), out._array.shape, out._array.dtype)
    node.of = ctx.name()
    out._grad_fn, out._requires_grad = node, True
    return out


__all__ = ["Function", "FunctionCtx", "once_differentiable"]
