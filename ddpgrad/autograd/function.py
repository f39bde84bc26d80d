"""`Function`: operations with a forward and a backward written by users.

Source of the behaviour: https://pytorch.org/docs/stable/autograd.html#function and
https://pytorch.org/docs/stable/notes/extending.html
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..backend.registry import Backend
from ..core.classes import prepare, seen, shown, walked
from ..core.dispatching import is_told, telling
from ..core.errors import GraphError
from ..core.tensor import Tensor
from ..core.view import View
from .accumulate import edge_of
from .context import OF_THE_NODE, FunctionCtx, save
from .grad_mode import mode
from .nodes import Node, refuse
from .views import check_writable, remember_plain_view, written


class FunctionNode(Node):
    """The step of backward that calls the `backward` of a `Function`.

    Attributes that it does not have, such as `saved_tensors`, are those of its `ctx`.
    """

    __slots__ = ("ctx", "like", "places")

    like: list[tuple[tuple[int, ...], Any]]  # of the tensor arguments; for jvp
    materialize_grads: bool = True
    special = True  # users' backward may return an array that they keep
    sees_undefined = True
    function: ClassVar[type[Function]]

    def __init__(self, args: Sequence[Any]) -> None:
        self.places = tuple(i for i, a in enumerate(args) if isinstance(a, Tensor))
        # The edges are taken before forward runs, which may change arguments in place.
        super().__init__(tuple(edge_of(args[i]) for i in self.places), (), None)
        self.ctx = FunctionCtx(self, args)
        if telling and is_told(args, {}):  # so its backward is asked for gradients of such a class
            self.tells = Node.any_tells = True

    def __getattr__(self, name: str) -> Any:
        if name == "ctx" or (name.startswith("_") and name != "_raw_saved_tensors"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.ctx, name)

    def apply(self, grad: Any, F: Any) -> list[Any]:
        grads = tuple(grad) if self.outputs > 1 else (grad,)
        on_tensors = not isinstance(F, Backend)
        if mode.transposing and self.function.jvp is not Function.jvp:
            from .own_tangents import transposed

            return transposed(self, grads)
        see = seen if on_tensors else shown
        grads = tuple(None if g is None else see(g) for g in grads)
        results = self._checked(walked(_backward_of(self.function)(self.ctx, *grads)))
        return results if on_tensors else [None if r is None else r._array for r in results]

    def release(self) -> None:
        if self.ctx._saved:
            self.ctx._saved = self.ctx._saved_forward = None

    def _checked(self, results: Any) -> list[Any]:
        """What backward returned, for the tensor arguments only."""
        results = results if isinstance(results, tuple) else (results,)
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
        for place, (target, nr) in zip(self.places, self.edges, strict=True):
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


BackwardCFunction = FunctionNode  # PyTorch's name of the class of a Function's node


def _backward_of(function: type[Function]) -> Callable[..., Any]:
    """`backward`, or `vjp`, which is the other name for it."""
    if function.vjp is Function.vjp:
        return function.backward
    if function.backward is not Function.backward:
        raise RuntimeError(
            f"{function.__name__}: Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
            "should only implement one of them."
        )
    return function.vjp


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

    takes_examples: ClassVar[bool] = False  # whether forward may be given all examples of a vmap at once
    # Whether func.vmap may call forward for every example, as it does where there is no `vmap` as well.
    generate_vmap_rule: ClassVar[bool] = False
    # Whether `ctx.saved_tensors` can be had once only, after which the node keeps nothing alive.
    clear_saved_tensors_on_access: ClassVar[bool] = False
    _backward_cls: ClassVar[type[FunctionNode]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._backward_cls = type(f"{cls.__name__}Backward", (FunctionNode,), {"function": cls})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all static, so you "
            f"should invoke them on the class itself: {type(self).__name__}.apply(...).",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            f"function with static forward method, and call {type(self).__name__}.apply(...)."
        )

    def __getattr__(self, name: str) -> Any:
        # In PyTorch 0.1 an instance was the node.
        if name in OF_THE_NODE:
            raise RuntimeError(
                f"Attribute '{name}' is invalid for an instance of {type(self).__name__}: it belongs to the grad_fn of "
                "a tensor that apply() returns."
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

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
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """The same as `backward`, of which a Function has one."""
        raise NotImplementedError("vjp is not implemented; a Function has backward or vjp")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Compute the tangents of the outputs from those of the arguments; without it they follow from `backward`."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """(outputs, their batch dimensions) of a batch of arguments. `func.vmap` has batches of one example here."""
        raise NotImplementedError("vmap is not implemented; func.vmap calls forward for every example")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` on `args` and record it."""
        separate = cls.setup_context is not Function.setup_context
        if separate or kwargs:
            args = _by_position(cls.forward, args, kwargs, takes_ctx=not separate)
        forward = cls.forward
        if mode.levels:
            forward = mode.levels[-1].forward_of(cls)
            if forward is None:  # within vmap, whose rule is called in place of all that follows
                return mode.levels[-1].mapped(cls, args)
        node = cls._backward_cls(args)
        ctx = node.ctx
        recording = mode.enabled and any(ctx.needs_input_grad)
        previous, mode.enabled = mode.enabled, False
        try:
            if separate:
                output = forward(*args)
                cls.setup_context(ctx, args, output)
            else:
                output = forward(ctx, *args)
        finally:
            mode.enabled = previous
        outputs = output if isinstance(output, tuple) else (output,)
        joined = _join(node, args, outputs, recording)
        return joined if isinstance(output, tuple) else joined[0]


def _by_position(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], takes_ctx: bool
) -> tuple[Any, ...]:
    """All arguments of `forward` by position, which is how `setup_context` and `backward` count them."""
    first = (None,) if takes_ctx else ()
    bound = inspect.signature(forward).bind(*first, *args, **kwargs)
    bound.apply_defaults()
    return bound.args[len(first) :]


class InplaceFunction(Function):
    """The base of in-place Functions in old programs; the same as `Function`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


# The base itself has one too, whose forward says that it must be written.
Function._backward_cls = type("FunctionBackward", (FunctionNode,), {"function": Function})


def _join(
    node: FunctionNode, args: Sequence[Any], outputs: tuple[Any, ...], recording: bool
) -> tuple[Any, ...]:
    """The outputs of forward as they go to the user: in the graph when `recording`."""
    ctx = node.ctx
    if recording:
        prepare(outputs)
    for t in ctx.dirty_tensors:
        if not _among(t, args):
            warnings.warn(
                f"{node.name()}: mark_dirty() was given a tensor that is not an argument of forward",
                stacklevel=3,
            )
        if not _among(t, outputs):
            raise RuntimeError(
                f"{node.name()}: Some elements marked as dirty during the forward method were not returned as output. "
                "The inputs that are modified inplace must all be outputs of the Function."
            )
        if recording and t._view is not None and len(outputs) > 1:
            raise RuntimeError(
                f"{node.name()}: If your Function modifies inplace an input that is a view of another Tensor, your "
                "Function cannot return more than one Tensor. clone() the input first, or split the Function in two."
            )
        if recording:
            check_writable(node.name(), t, needs_grad=True)
        t._versions[0] += 1
    unseen = () if ctx._materialize_non_diff_grads else ctx.non_differentiable
    shapes = tuple(
        o._array.shape if isinstance(o, Tensor) and not _among(o, unseen) else None for o in outputs
    )
    dtypes = tuple(o._array.dtype if isinstance(o, Tensor) else None for o in outputs)
    if len(outputs) == 1:
        node.shape, node.dtype = shapes[0], dtypes[0]
    else:
        node.shape, node.dtype, node.outputs = shapes, dtypes, len(outputs)
    node.materialize_grads = ctx.materialize_grads
    # A tensor that is returned twice comes out as one, whose gradient is that of the last place.
    last = {id(o): nr for nr, o in enumerate(outputs)}
    made = {nr: _output(node, nr, o, args, recording) for nr, o in enumerate(outputs)
            if isinstance(o, Tensor) and last[id(o)] == nr}  # fmt: skip
    joined = tuple(made.get(last[id(o)], o) for o in outputs)
    if recording:
        # An output that is saved is saved as the user gets it.
        given: dict[int, Any] = {id(before): after for before, after in zip(outputs, joined, strict=True)}
        ctx.keep(lambda t: save(given.get(id(t), t), node))
        if node.function.jvp is not Function.jvp:
            node.like = [(args[i]._array.shape, args[i]._array.dtype) for i in node.places]
    ctx.to_save = ctx.to_save_forward = ctx.dirty_tensors = ctx.non_differentiable = ()
    return joined


def _output(node: FunctionNode, nr: int, output: Tensor, args: Sequence[Any], recording: bool) -> Tensor:
    """Output `nr` as the user gets it."""
    ctx = node.ctx
    constant = output._array.dtype.kind in "biu" or _among(output, ctx.non_differentiable)
    if _among(output, ctx.dirty_tensors):
        if recording and not constant:
            written(output, node, nr)
        elif output._requires_grad:
            return output.detach()
        return output
    if not recording or constant:
        return _unrecorded(output, args)
    of = next((a for a in args if isinstance(a, Tensor) and a._versions is output._versions), None)
    out = output
    if of is not None or out._requires_grad:
        # An argument returned as it is, or a view of one: its own tensor, with this node as its history.
        out = output.detach()
        if of is not None:
            base = of if of._view is None else of._view.base
            out._view = View(base, None, base._grad_fn, "several" if node.outputs > 1 else "Function")
    elif out._view is not None:
        base = out._view.base
        out._view = View(base, None, base._grad_fn, "several" if node.outputs > 1 else "Function")
    out._grad_fn, out._output_nr, out._requires_grad = node, nr, True
    return out


def _unrecorded(output: Tensor, args: Sequence[Any]) -> Tensor:
    """An output without history, as the user gets it: what shares memory with an argument is a view of it."""
    out = output
    if _among(output, args):
        out = output.detach()
        if not output._requires_grad and not output.is_inference():
            base = output if output._view is None else output._view.base
            out._view = View(base, None, output._versions[0], "Function")
            remember_plain_view(base, out)
    elif out._view is not None:
        out._view = out._view._replace(maker="Function")
    return out


def _among(tensor: Any, values: Sequence[Any]) -> bool:
    return any(tensor is v for v in values)


# -- backward that cannot be differentiated --------------------------------------------------


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
        edges = [*(edge_of(g) for g in grads if isinstance(g, Tensor)), *(node.edges if node else ())]
        if all(edge[0] is None for edge in edges):
            return results
        error = GraphError(
            "trying to differentiate twice a function that was marked with @once_differentiable: "
            f"{backward.__qualname__}"
        )
        several = results if isinstance(results, tuple) else (results,)
        found = tuple(refuse(r, error, edges) if isinstance(r, Tensor) else r for r in several)
        return found if isinstance(results, tuple) else found[0]

    return wrapper


__all__ = ["BackwardCFunction", "Function", "FunctionCtx", "once_differentiable"]
