"""The graph: nodes that can compute gradients, joined by edges to the nodes of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from ..core.upcalls import run_node

# (node, which of its outputs); (None, 0) where no gradient is needed.
Edge = tuple["Node | None", int]
NO_EDGE: Edge = (None, 0)


class GradientEdge(NamedTuple):
    """An edge as users hold it: output `output_nr` of `node`."""

    node: Node
    output_nr: int


next_sequence = count().__next__

_handle_ids = count()

observers: list[Any] = []
"""Not empty while something wants to see each new node: anomaly mode, or hooks on saved tensors (`saved.py`)."""

RETAIN = -1
"""Key of the tensor hook that retains a gradient; the engine runs it after all others."""


class RemovableHandle:
    """Removes a hook: call `remove()`, or use it as a context manager."""

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._hooks = hooks
        self.id = next(_handle_ids)

    def remove(self) -> None:
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Node:
    """A step of backward: gradients of its outputs in, gradients of its inputs out.

    edges: where the gradients of the inputs go. shape, dtype: of the output (NumPy's terms), which gradients are brought to before the
    node sees them; tuples of them when `outputs` is more than 1. sequence: grows with
    creation, so that later operations go first in backward.
    """

    __slots__ = ("__dict__", "__weakref__", "dtype", "edges", "sequence", "shape")

    # What few nodes have lives in `__dict__`, with these class defaults.
    outputs: int = 1
    # True when the engine must look closer: there are hooks, several outputs, or gradients
    # that the node returns may be arrays that somebody else has too.
    special: bool = False
    # True when the node runs also where no gradient reached it.
    sees_undefined: bool = False
    _hooks: dict[int, Any] | None = None
    _prehooks: dict[int, Any] | None = None
    _tensor_hooks: dict[int, dict[int, Any]] | None = None
    _metadata: dict[Any, Any] | None = None

    def __init__(self, edges: Sequence[Edge], shape: Any, dtype: Any, outputs: int = 1) -> None:
        self.edges = edges
        self.shape = shape
        self.dtype = dtype
        self.sequence = next_sequence()
        if outputs != 1:
            self.outputs = outputs
            self.special = True
        if observers:
            self.observed()

    def observed(self) -> None:
        """Tell who wants to know (`observers`) that this node was recorded."""
        for observer in observers:
            observer(self)

    def shown(self) -> Node:
        """The node, fit to be looked at: every node that reaches users has been through here."""
        return self

    @property
    def next_functions(self) -> tuple[Edge, ...]:
        """The nodes that the gradients of the inputs go to, and which output of theirs each is for."""
        return tuple([(node if node is None else node.shown(), nr) for node, nr in self.edges])

    def name(self) -> str:
        """What PyTorch would call it, such as 'MulBackward0'."""
        return type(self).__name__

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for whatever the user wants to keep with the node."""
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    def register_hook(self, hook: Callable[[Any, Any], Any]) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after the node; a result replaces grad_inputs."""
        self.special = True
        if self._hooks is None:
            self._hooks = {}
        return _add(self._hooks, hook)

    def register_prehook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook(grad_outputs)` before the node; a result replaces grad_outputs."""
        self.special = True
        if self._prehooks is None:
            self._prehooks = {}
        return _add(self._prehooks, hook)

    def tensor_hooks(self, output_nr: int) -> dict[int, Any]:
        """The hooks of the tensor that is output `output_nr`, in order of registration."""
        self.special = True
        if self._tensor_hooks is None:
            self._tensor_hooks = {}
        return self._tensor_hooks.setdefault(output_nr, {})

    def apply(self, grad: Any, F: Any) -> Sequence[Any]:
        """Gradients for `edges`. F: the vocabulary; `grad`: arrays or Tensors, as F's."""
        raise NotImplementedError(f"{self.name()} does not define a gradient")

    def release(self) -> None:
        """Forget what was saved for backward."""

    def __call__(self, *grads: Any) -> Any:
        """What backward would compute at this node: gradients of its outputs in, of its inputs out."""
        return run_node(self, grads)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


def _add(hooks: dict[int, Any], hook: Any) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
