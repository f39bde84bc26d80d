"""`torch.cuda.captured_step`: a training step that is captured as one CUDA graph, or runs eagerly and says why."""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.grad_mode import is_grad_enabled, no_grad
from ..backend.cuda import library
from ..backend.cuda.capture import copied, fill
from ..backend.device import capturing, current_cuda
from ..core.errors import CaptureError
from ..core.size import contiguous_format
from ..core.tensor import Tensor, wrap
from ..cuda.graphs import CUDAGraph, PoolHandle, graph, graph_pool_handle
from . import _pytree

_MOST_KINDS = 4  # of inputs, each of which has a graph and its memory
_MOST_CAPTURES = 3  # of one kind of inputs


class _Kind:
    """What is known for inputs of one kind. eager: steps so far; graph: None until it is captured."""

    def __init__(self) -> None:
        self.eager = self.captures = 0
        self.graph: CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.outputs: Any = None


class CapturedStep:
    """A step that `captured_step` made. why_not: the reason why the last call ran eagerly, or None."""

    def __init__(self, function: Callable[..., Any], warmup: int) -> None:
        functools.update_wrapper(self, function)
        self._function, self._warmup = function, warmup
        self._kinds: dict[Any, _Kind] = {}
        self._pool: PoolHandle | None = None
        self._said: set[str] = set()
        self._failed: str | None = None
        self.why_not: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The step for these arguments: the function's result, in tensors of its own."""
        leaves, tree = _pytree.tree_flatten((args, kwargs))
        reason = self._failed or _unfit(leaves)
        kind = None
        if reason is None:
            key = (tree, is_grad_enabled(), *map(_described, leaves))
            kind = self._kinds.get(key)
            if kind is None and len(self._kinds) == _MOST_KINDS:
                reason = f"its inputs come in more than {_MOST_KINDS} shapes"
            elif kind is None:
                kind = self._kinds[key] = _Kind()
        if kind is not None and kind.graph is not None and (changed := kind.graph.changed()):
            kind.graph, kind.eager = None, 0
            if kind.captures == _MOST_CAPTURES:
                self._failed = changed
            reason = changed
        self.why_not = reason
        if reason is not None:
            self._say(reason)
        elif kind is not None and (kind.graph is not None or kind.eager >= self._warmup):
            try:
                return self._replayed(kind, leaves, tree)
            except CaptureError as error:
                self.why_not = self._failed = str(error)
                self._say(str(error))
        if kind is not None:
            kind.eager += 1
        return self._function(*args, **kwargs)

    def _replayed(self, kind: _Kind, leaves: list[Any], tree: _pytree.TreeSpec) -> Any:
        given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if kind.graph is None:
            self._capture(kind, leaves, tree)
        assert kind.graph is not None
        with no_grad():
            for own, value in zip(kind.inputs, given, strict=True):
                fill(own._array, value._array)
            kind.graph.replay()
            return _pytree.tree_map_only(Tensor, lambda output: wrap(copied(output._array)), kind.outputs)

    def _capture(self, kind: _Kind, leaves: list[Any], tree: _pytree.TreeSpec) -> None:
        self._pool = self._pool or graph_pool_handle()
        own = [
            leaf.detach().clone(memory_format=contiguous_format) if isinstance(leaf, Tensor) else leaf
            for leaf in leaves
        ]
        args, kwargs = _pytree.tree_unflatten(own, tree)
        before = {id(tensor): tensor._grad for tensor in _tensors()}
        captured, begun, failure, outputs = CUDAGraph(), None, None, None
        try:
            with graph(captured, pool=self._pool):
                begun = capturing.now
                outputs = self._function(*args, **kwargs)
        except Exception as error:
            failure = error
        if begun is not None and begun.agree is not None and not begun.agree(failure is None):
            failure = failure or CaptureError("another rank could not capture the step")
        if failure is not None:
            for tensor in _tensors():  # nothing ran: gradients of the attempt were never computed
                tensor._grad = before.get(id(tensor))
            raise failure
        kind.graph, kind.outputs = captured, outputs
        kind.inputs = [leaf for leaf in own if isinstance(leaf, Tensor)]
        kind.captures += 1

    def _say(self, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            name = getattr(self._function, "__name__", "step")
            warnings.warn(f"{name} runs eagerly, not as a CUDA graph: {reason}", stacklevel=3)


def _tensors() -> list[Tensor]:
    """All tensors of this process that have, or may have, a gradient."""
    return [found for found in gc.get_objects() if isinstance(found, Tensor) and found.is_leaf]


def _described(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return tuple(leaf.shape), leaf.dtype, leaf.device, leaf._requires_grad
    return type(leaf), leaf


def _unfit(leaves: list[Any]) -> str | None:
    """Why a step with these inputs cannot be captured, or None."""
    if missing := library.missing():
        return missing
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            if leaf.device.type != "cuda" or leaf.device.index != current_cuda():
                return f"input {i} is on {leaf.device}, not on the current GPU cuda:{current_cuda()}"
            if leaf._requires_grad:
                return f"input {i} requires a gradient"
        elif leaf.__class__.__hash__ is None:
            return f"input {i} is a {type(leaf).__name__}, which cannot be compared with that of other steps"
    return None


def captured_step(function: Callable[..., Any] | None = None, *, warmup: int = 3) -> Any:
    """A training step that becomes one CUDA graph: zero_grad, forward, backward, clipping, optimizer; or a decorator.

        @torch.cuda.captured_step
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

    The first `warmup` calls are eager steps; the next one is captured, and from then on a call copies its inputs, launches
    the graph, and returns copies of the outputs: the same losses and parameters, to the bit. Inputs of another shape, type
    or value have graphs of their own. Random numbers, learning rates and the optimizer's counts go on as in eager steps.
    What cannot be captured runs eagerly, with one warning that says why (`step.why_not`): inputs on the host, reading a
    value (`.item()`), an optimizer without `capturable=True`, `GradScaler` without a fused optimizer.

    What the function does on the host happens at the capture only: keep schedulers, logging and counting outside.
    """
    if function is None:
        return functools.partial(captured_step, warmup=warmup)
    if warmup < 1:
        raise ValueError(
            f"captured_step needs a step that runs before the capture: warmup >= 1, got {warmup}"
        )
    return CapturedStep(function, warmup)


__all__ = ["CapturedStep", "captured_step"]
