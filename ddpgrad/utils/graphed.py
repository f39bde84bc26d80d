"""`torch.cuda.make_graphed_callables`: forward and backward of modules and functions, each as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd import grad as gradients
from ..autograd.function import Function, once_differentiable
from ..autograd.grad_mode import enable_grad
from ..backend.cuda.capture import fill
from ..core.tensor import Tensor
from ..cuda.graphs import CUDAGraph, PoolHandle, graph, graph_pool_handle
from ..cuda.streams import Stream, current_stream, stream
from ..nn.modules.module import Module
from ..ops.dispatch.autocast import state as autocast
from . import _pytree

_MOST_KINDS_OF_HOOKS = ("_backward_hooks", "_forward_hooks", "_forward_pre_hooks")


class _Graphed:
    """One callable with the tensors that its graphs read and write. surface: inputs and parameters, in that order."""

    def __init__(self, callable_: Callable[..., Any], args: Sequence[Any], allow_unused: bool) -> None:
        self.callable, self.args = callable_, tuple(args)
        self.inputs, self.tree = _pytree.tree_flatten(self.args)
        if not all(isinstance(value, Tensor) for value in self.inputs):
            raise TypeError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed."
            )
        parameters = tuple(callable_.parameters()) if isinstance(callable_, Module) else ()
        self.surface: tuple[Tensor, ...] = (*self.inputs, *parameters)
        self._allow_unused = allow_unused
        self.forward_graph, self.backward_graph = CUDAGraph(), CUDAGraph()
        self.outputs: tuple[Tensor, ...] = ()
        self.grad_outputs: tuple[Tensor | None, ...] = ()
        self.grad_inputs: tuple[Tensor | None, ...] = ()

    def warm_up(self, times: int) -> None:
        """Run forward and backward, so that kernels are compiled."""
        for _ in range(times):
            self._run()
            self._backward()

    def _run(self) -> None:
        with enable_grad():
            outputs, self.output_tree = _pytree.tree_flatten(self.callable(*self.args))
        self.outputs = tuple(outputs)
        self.grad_outputs = tuple(_like(output) if output.requires_grad else None for output in self.outputs)

    def _backward(self) -> None:
        wanted = [tensor for tensor in self.surface if tensor.requires_grad]
        outputs = [output for output in self.outputs if output.requires_grad]
        found = iter(())
        if wanted and outputs:
            given = [grad for grad in self.grad_outputs if grad is not None]
            found = iter(gradients(outputs, wanted, given, allow_unused=self._allow_unused))
        self.grad_inputs = tuple(next(found, None) if t.requires_grad else None for t in self.surface)

    def capture_forward(self, pool: PoolHandle) -> None:
        with graph(self.forward_graph, pool=pool), enable_grad():
            outputs, self.output_tree = _pytree.tree_flatten(self.callable(*self.args))
        self.outputs = tuple(outputs)
        self.grad_outputs = tuple(_like(output) if output.requires_grad else None for output in self.outputs)

    def capture_backward(self, pool: PoolHandle) -> None:
        with graph(self.backward_graph, pool=pool):
            self._backward()
        self.outputs = tuple(output.detach() for output in self.outputs)

    def __call__(self, *args: Any) -> Any:
        given, tree = _pytree.tree_flatten(args)
        if tree != self.tree:
            raise RuntimeError(f"a graphed callable was captured with arguments {self.tree}, got {tree}")
        outputs = _Replay.apply(self, *given, *self.surface[len(self.inputs) :])
        return _pytree.tree_unflatten(outputs, self.output_tree)


def _like(output: Tensor) -> Tensor:
    """Memory for the gradient of an output; zeros, which a warm-up may go back from."""
    return output.detach().new_zeros(output.shape)


class _Replay(Function):
    @staticmethod
    def forward(ctx: Any, graphed: _Graphed, *surface: Tensor) -> tuple[Tensor, ...]:
        ctx.graphed = graphed
        for own, given in zip(graphed.inputs, surface, strict=False):
            if own.shape != given.shape or own.dtype != given.dtype:
                raise RuntimeError(
                    f"a graphed callable was captured for an input of shape {tuple(own.shape)} and {own.dtype}, got "
                    f"{tuple(given.shape)} and {given.dtype}"
                )
            if own._array is not given._array:
                fill(own._array, given._array)
        graphed.forward_graph.replay()
        return tuple(output.detach() for output in graphed.outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        graphed = ctx.graphed
        for own, given in zip(graphed.grad_outputs, grads, strict=True):
            if own is not None and given is not None and own._array is not given._array:
                fill(own._array, given._array)
        graphed.backward_graph.replay()
        return None, *[None if grad is None else grad.detach() for grad in graphed.grad_inputs]


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
) -> Any:
    """Modules or functions whose forward and backward are one graph launch each; a tuple of them for a tuple.

    sample_args: tensors on a GPU of the shapes, types and `requires_grad` of later calls, which are copied into them;
    for a tuple of callables, in the order in which they will run, a tuple of such tuples. A module is changed and returned:
    while its training mode is the present one its forward runs the graph. allow_unused_input: some inputs and
    parameters may have no part in the output. Outputs and gradients are overwritten by the next call.
    Source: https://pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html
    """
    if autocast.cache_enabled and any(autocast.enabled.values()):
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    several = isinstance(callables, tuple)
    every = callables if several else (callables,)
    arguments = sample_args if several else (sample_args,)
    for each in every:
        _require_plain(each)
    graphed = [_Graphed(each, args, allow_unused_input) for each, args in zip(every, arguments, strict=True)]
    beside = Stream()
    beside.wait_stream(current_stream())
    with stream(beside):
        for each in graphed:
            each.warm_up(num_warmup_iters)
    current_stream().wait_stream(beside)
    pool = graph_pool_handle() if pool is None else pool
    for each in graphed:
        each.capture_forward(pool)
    for each in reversed(graphed):
        each.capture_backward(pool)
    made = tuple(_in_place_of(each) for each in graphed)
    return made if several else made[0]


def _require_plain(callable_: Any) -> None:
    if not isinstance(callable_, Module):
        return
    if any(getattr(callable_, kind) for kind in _MOST_KINDS_OF_HOOKS):
        raise RuntimeError(
            "Modules must not have hooks registered at the time they are passed. However, registering hooks on modules "
            "after passing them through make_graphed_callables is allowed."
        )
    if any(buffer.requires_grad for buffer in callable_.buffers()):
        raise RuntimeError(
            "In any module passed to make_graphed_callables(), only parameters may be trainable. All buffers must have "
            "``requires_grad=False``."
        )


def _in_place_of(graphed: _Graphed) -> Any:
    """What the user calls: the module itself, whose forward chooses, or a function."""
    module = graphed.callable
    if not isinstance(module, Module):
        return graphed
    plain, training = module.forward, module.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        return graphed(*args) if module.training is training else plain(*args, **kwargs)

    module.forward = forward
    return module


__all__ = ["make_graphed_callables"]
