"""A step on a GPU that is captured as one CUDA graph, and what launches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.grad_mode import no_grad
from ..backend.cuda import library
from ..backend.cuda.capture import copied, fill
from ..backend.device import capturing, current_cuda
from ..core.errors import CaptureError
from ..core.living import living
from ..core.size import contiguous_format
from ..core.tensor import Tensor, wrap
from ..cuda.graphs import CUDAGraph, PoolHandle, graph
from . import _pytree
from .captured_step import captured_step as on_any_device


class GraphedStep:
    """A step for inputs of one kind. failure: why it cannot be captured, or None. pool: memory that graphs share."""

    def __init__(self, function: Callable[..., Any], pool: PoolHandle) -> None:
        self._function, self._pool = function, pool
        self._graph: CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._outputs: Any = None
        self.failure: str | None = None

    @property
    def ready(self) -> bool:
        """Whether the next call is a launch of the graph."""
        return self._graph is not None

    def changed(self) -> str | None:
        """What the graph relies on and is not as it was captured, or None."""
        return None if self._graph is None else self._graph.changed()

    def replay(self, leaves: Sequence[Any]) -> Any:
        """Take a step by the graph."""
        assert self._graph is not None
        given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        with no_grad():
            for own, value in zip(self._inputs, given, strict=True):
                fill(own._array, value._array)
            self._graph.replay()
            return _pytree.tree_map_only(Tensor, lambda output: wrap(copied(output._array)), self._outputs)

    def record(self, leaves: Sequence[Any], args: Any, kwargs: Any) -> Any:
        """Capture a step, and take it; a step that cannot be captured is taken as always."""
        try:
            self._capture(leaves, _pytree.tree_structure((args, kwargs)))
        except CaptureError as error:
            self.failure = str(error)
            return self._function(*args, **kwargs)
        return self.replay(leaves)

    def _capture(self, leaves: Sequence[Any], tree: _pytree.TreeSpec) -> None:
        own = [
            leaf.detach().clone(memory_format=contiguous_format) if isinstance(leaf, Tensor) else leaf
            for leaf in leaves
        ]
        args, kwargs = _pytree.tree_unflatten(own, tree)
        before = {id(tensor): tensor._grad for tensor in _tensors()}
        captured, begun, failure, outputs = CUDAGraph(), None, None, None
        try:
            # Other threads, such as one that page-locks batches, know nothing of it and go on.
            with graph(captured, pool=self._pool, capture_error_mode="thread_local"):
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
        self._graph, self._outputs = captured, outputs
        self._inputs = [leaf for leaf in own if isinstance(leaf, Tensor)]


def captured_step(function: Callable[..., Any] | None = None, *, warmup: int = 3) -> Any:
    """`torch.captured_step` of a step on the current GPU."""
    return on_any_device(function, warmup=warmup, device="cuda")


def _tensors() -> list[Tensor]:
    """All tensors of this process that have, or may have, a gradient."""
    return [tensor for tensor in living((Tensor,)) if tensor.is_leaf]


def unfit(leaves: Sequence[Any]) -> str | None:
    """Why a step with these inputs cannot be a CUDA graph, or None."""
    if missing := library.missing():
        return missing
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and (leaf.device.type != "cuda" or leaf.device.index != current_cuda()):
            return f"input {i} is on {leaf.device}, not on the current GPU cuda:{current_cuda()}"
    return None
