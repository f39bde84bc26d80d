"""Hooks around the forward and the backward of a module."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...autograd.accumulate import edge_of
from ...autograd.grad_mode import mode
from ...autograd.graph import Node, RemovableHandle
from ...core.rank_local import RankLocal
from ...core.tensor import Tensor, wrap
from ...core.view import View
from ...ops.creation.factories import zeros

if TYPE_CHECKING:
    from .module import Module


class Hooks:
    """All hooks of one module, in order of call. A module has this object only once one is registered."""

    __slots__ = ("always", "backward", "backward_pre", "on_node", "post", "pre", "with_kwargs")

    def __init__(self) -> None:
        self.pre: OrderedDict[int, Any] = OrderedDict()
        self.post: OrderedDict[int, Any] = OrderedDict()
        # Of `pre` and `post`, those that are called with keyword arguments; of `post`, those after an error, too.
        self.with_kwargs: OrderedDict[int, bool] = OrderedDict()
        self.always: OrderedDict[int, bool] = OrderedDict()
        self.backward_pre: OrderedDict[int, Any] = OrderedDict()
        self.backward: OrderedDict[int, Any] = OrderedDict()
        self.on_node: OrderedDict[int, Any] = OrderedDict()  # of the output's own node

    def __bool__(self) -> bool:
        return bool(self.pre or self.post or self.backward_pre or self.backward or self.on_node)


of_all_modules: RankLocal[Hooks] = RankLocal(Hooks)
_NONE = Hooks()


class _Flag:
    """Whether any rank has ever registered a hook of all modules: the one thing that each call asks."""

    raised: bool = False


of_all = _Flag()


def _global() -> Hooks:
    of_all.raised = True
    return of_all_modules.get()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the forward of every module, before its own hooks."""
    return add(_global().pre, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the forward of every module, before its own hooks."""
    return add_post(_global(), hook, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the backward of every module, before its own hooks."""
    return add(_global().backward_pre, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` after the backward of every module, before its own hooks."""
    return add_backward(_global(), hook, full=True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` after the node that made the output of every module.

    PyTorch's former form of `register_module_full_backward_hook`.
    """
    return add_backward(_global(), hook, full=False)


def add(hooks: OrderedDict[int, Any], entry: Any, prepend: bool = False, *said_of_it: Any) -> RemovableHandle:
    """Register `entry` as the last hook, or as the first. said_of_it: where more is said of it by its number."""
    handle = RemovableHandle(hooks, extra_dict=[*said_of_it])
    hooks[handle.id] = entry
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def add_pre(hooks: Hooks, hook: Callable[..., Any], prepend: bool, with_kwargs: bool) -> RemovableHandle:
    """Register a hook before forward."""
    handle = add(hooks.pre, hook, prepend, hooks.with_kwargs)
    if with_kwargs:
        hooks.with_kwargs[handle.id] = True
    return handle


def add_post(
    hooks: Hooks, hook: Callable[..., Any], with_kwargs: bool, always_call: bool, prepend: bool = False
) -> RemovableHandle:
    """Register a hook after forward."""
    handle = add(hooks.post, hook, prepend, hooks.with_kwargs, hooks.always)
    if with_kwargs:
        hooks.with_kwargs[handle.id] = True
    if always_call:
        hooks.always[handle.id] = True
    return handle


def add_backward(
    hooks: Hooks, hook: Callable[..., Any], full: bool, prepend: bool = False
) -> RemovableHandle:
    """Register a backward hook of the whole module (`full`), or of the node of its output; never both."""
    if hooks.on_node if full else hooks.backward:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks "
            f"{'as global Module hooks' if hooks is of_all_modules.get() else 'on a single Module'}. Please use only "
            "one of them."
        )
    return add(hooks.backward if full else hooks.on_node, hook, prepend)


def table(name: str) -> property:
    """The property of a module that holds its hooks of one kind, as programs look for them: {number: hook}."""

    def get(module: Module) -> OrderedDict[int, Any]:
        return getattr(module._own_hooks(), name)

    def replace(module: Module, hooks: OrderedDict[int, Any]) -> None:
        setattr(module._own_hooks(), name, hooks)

    return property(get, replace)


class _Both:
    """The hooks around one call: those of all modules, then the module's own."""

    __slots__ = Hooks.__slots__

    def __init__(self, every: Hooks, own: Hooks) -> None:
        for name in Hooks.__slots__:
            setattr(self, name, {**getattr(every, name), **getattr(own, name)})


def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`module.forward` with everything registered around it."""
    own = module._hooks or _NONE
    every = of_all_modules.get() if of_all.raised else _NONE
    if not own and not every:
        return module.forward(*args, **kwargs)
    return _call(module, _Both(every, own), args, kwargs)


def _call(module: Module, hooks: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    called: set[int] = set()
    result = None
    try:
        args, kwargs = _call_pre(module, hooks, args, kwargs)
        watch = _Watch(module, hooks) if mode.enabled and (hooks.backward or hooks.backward_pre) else None
        if watch is not None:
            args = watch.inputs(args)
        result = module.forward(*args, **kwargs)
        for key, hook in hooks.post.items():
            called.add(key)
            with_kwargs = key in hooks.with_kwargs
            changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            if changed is not None:
                result = changed
        if watch is not None:
            result = watch.outputs(result)
        if hooks.on_node:
            _watch_node(module, hooks.on_node, args, result)
        return result
    except Exception:
        for key, hook in hooks.post.items():
            if key in hooks.always and key not in called:
                with_kwargs = key in hooks.with_kwargs
                _call_after_error(
                    hook, (module, args, kwargs, result) if with_kwargs else (module, args, result)
                )
        raise


def _call_pre(
    module: Module, hooks: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for key, hook in hooks.pre.items():
        if key in hooks.with_kwargs:
            changed = hook(module, args, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise RuntimeError(
                    f"forward pre-hook of {type(module).__name__} must return None or a tuple of "
                    f"(new_args, new_kwargs), but got {changed!r}"
                )
            args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def _call_after_error(hook: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Forward has failed: a hook that fails too must not hide the first error."""
    try:
        hook(*arguments)
    except Exception as error:
        warnings.warn(
            f"a forward hook with always_call=True raised {type(error).__name__}: {error}; the error of forward "
            "itself follows",
            stacklevel=2,
        )


def _watch_node(module: Module, hooks: dict[int, Any], args: tuple[Any, ...], result: Any) -> None:
    """Tell `register_backward_hook`'s hooks of the node of the first tensor in `result`."""
    first = result
    while not isinstance(first, Tensor):
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    node = first._grad_fn
    if node is not None:
        for hook in hooks.values():
            node.register_hook(lambda gi, go, hook=hook: hook(module, gi, go))
        missed = _what_is_missed(args, result, node)
        if missed:
            warnings.warn(
                f"Using a non-full backward hook when {missed} is deprecated and will be removed in future versions: the "
                "hook sees one autograd Node. Please use register_full_backward_hook to get the documented behavior.",
                FutureWarning,
                stacklevel=4,
            )


def _what_is_missed(args: tuple[Any, ...], result: Any, node: Node) -> str | None:
    """Why a hook of `node` alone does not see all gradients of a module; None if it does."""
    outputs = (result,) if isinstance(result, Tensor) else result
    if not (isinstance(outputs, tuple) and all(isinstance(t, Tensor) for t in outputs)):
        return "the Module does not return a single Tensor or a tuple of Tensors"
    if not all(isinstance(t, Tensor) for t in args):
        return "the Module does not take as input a single Tensor or a tuple of Tensors"
    if any(t._grad_fn is not node for t in outputs if t._grad_fn is not None):
        return "outputs are generated by different autograd Nodes"
    if {t._grad_fn for t in args} - {None} != {target for target, _ in node.edges}:
        return "the forward contains multiple autograd Nodes"
    return None


# -- backward ------------------------------------------------------------------------------


class Gate(Node):
    """Passes gradients through unchanged, several at once, so that hooks see them together."""

    __slots__ = ()

    def name(self) -> str:
        return "BackwardHookFunctionBackward"

    def apply(self, grad: Any, F: Any) -> Sequence[Any]:
        return tuple(grad) if self.outputs > 1 else (grad,)


def _through_gate(tensors: Sequence[Tensor], entering: bool) -> tuple[Gate, list[Tensor]]:
    """A gate above `tensors`, and the same tensors as they come out of it.

    Those that others hold too, which all that enter may be, must not be written to: the others' history would
    not know.
    """
    shapes = tuple(t._array.shape for t in tensors)
    dtypes = tuple(t._array.dtype for t in tensors)
    edges = tuple(edge_of(t) for t in tensors)
    if len(tensors) == 1:
        gate = Gate(edges, shapes[0], dtypes[0])
    else:
        gate = Gate(edges, shapes, dtypes, len(tensors))
    passed = []
    for nr, tensor in enumerate(tensors):
        if not tensor._requires_grad:
            passed.append(tensor)
            continue
        out = wrap(tensor._array)
        out._versions = tensor._versions
        out._requires_grad, out._grad_fn, out._output_nr = True, gate, nr
        if entering or tensor._view is not None:
            base = tensor if tensor._view is None else tensor._view.base
            out._view = View(base, None, base._grad_fn, "Function")
        passed.append(out)
    return gate, passed


class _Watch:
    """One forward call of a module with backward hooks: a gate before it and one after it."""

    def __init__(self, module: Module, hooks: Any) -> None:
        self.module, self.hooks, self.count, self.places = module, hooks, 0, list[int]()
        self.entered = False  # True when an input requires a gradient: the gate before it will be reached
        self.idle: dict[int, tuple[Any, ...]] = {}  # tensors that require no gradient beside some that do
        self.grad_outputs: tuple[Any, ...] = ()

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The positional tensors, to be used in place of `args`."""
        self.count = len(args)
        self.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        tensors = [args[i] for i in self.places]
        if not any(t._requires_grad for t in tensors):
            return args
        self.entered = True
        gate, passed = _through_gate(tensors, entering=True)
        gate.register_hook(lambda grads, _: self._leaving(grads))
        kinds = {i: (args[i].shape, args[i].dtype, args[i].device) for i in self.places}
        self.idle = {i: kind for i, kind in kinds.items() if not args[i]._requires_grad}
        changed = list(args)
        for i, tensor in zip(self.places, passed, strict=True):
            changed[i] = tensor
        return tuple(changed)

    def outputs(self, result: Any) -> Any:
        """The result of forward (a Tensor or a tuple), to be handed on in its place."""
        several = isinstance(result, (tuple, list))
        values = list(result) if several else [result]
        places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        tensors = [values[i] for i in places]
        if result is not None and not tensors:
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(result)}",
                stacklevel=4,
            )
        if not any(t._requires_grad for t in tensors):
            return result
        gate, passed = _through_gate(tensors, entering=False)
        count = len(values)  # a hook that held `values` would hold its own graph
        gate.register_hook(lambda grads, _: self._entering(grads, places, count))
        for i, tensor in zip(places, passed, strict=True):
            values[i] = tensor
        if not several:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)

    def _entering(self, grads: tuple[Any, ...], places: list[int], count: int) -> tuple[Any, ...]:
        spread: list[Any] = [None] * count
        for i, grad in zip(places, grads, strict=True):
            spread[i] = grad
        self.grad_outputs = tuple(spread)
        for hook in self.hooks.backward_pre.values():
            changed = hook(self.module, self.grad_outputs)
            if changed is not None:
                self.grad_outputs = _as_many(changed, self.grad_outputs, "grad_output")
        grads = tuple(self.grad_outputs[i] for i in places)
        if not self.entered:
            # No gradient will leave through the inputs, so this is the only time to tell.
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                "inputs require gradients",
                stacklevel=2,
            )
            if any(g is not None for g in self._tell((None,) * self.count)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients"
                )
        return grads

    def _leaving(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self.grad_outputs:
            return grads  # a second derivative, which comes through the inputs alone
        spread: list[Any] = [None] * self.count
        for i, grad in zip(self.places, grads, strict=True):
            spread[i] = grad
        for i, (shape, dtype, device) in self.idle.items():
            spread[i] = zeros(shape, dtype=dtype, device=device)  # as if it were passed on like the others
        told = self._tell(tuple(spread))
        return tuple(None if i in self.idle else told[i] for i in self.places)

    def _tell(self, grad_inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.hooks.backward.values():
            changed = hook(self.module, grad_inputs, self.grad_outputs)
            if changed is not None:
                grad_inputs = _as_many(changed, grad_inputs, "grad_input")
        self.grad_outputs = ()
        return grad_inputs


def _as_many(changed: Any, old: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    if not isinstance(changed, (tuple, list)):
        raise RuntimeError(f"a backward hook returned {type(changed).__name__} as {what}, not a tuple")
    new = tuple(changed)
    if len(new) != len(old):
        raise RuntimeError(f"a backward hook returned {len(new)} values as {what}, but there are {len(old)}")
    return new
