"""The graph: nodes that can compute gradients, joined by edges to the nodes of their inputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import ref

from ..core.upcalls import run_node

if TYPE_CHECKING:
    from ..core.tensor import Tensor

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


def _itself(hooks: dict[int, Any]) -> dict[int, Any]:
    """A reference to a plain dictionary, of which there are no weak ones."""
    return hooks


class RemovableHandle:
    """Removes a hook: call `remove()`, or use it as a context manager.

    id: the key of the hook in the dictionary `hooks_dict_ref()`, and in those of `extra_dict_ref`, which say more of
    it. A handle keeps no OrderedDict alive; once that is gone, the reference returns None.
    """

    def __init__(
        self, hooks_dict: dict[int, Any], *, extra_dict: dict[int, Any] | list[dict[int, Any]] | None = None
    ) -> None:
        self.id = next(_handle_ids)
        extra = extra_dict if isinstance(extra_dict, list) else [] if extra_dict is None else [extra_dict]
        self._refer(hooks_dict, extra)

    def _refer(self, hooks_dict: dict[int, Any], extra: Iterable[dict[int, Any]]) -> None:
        self.hooks_dict_ref, *rest = (
            ref(each) if isinstance(each, OrderedDict) else partial(_itself, each)
            for each in (hooks_dict, *extra)
        )
        self.extra_dict_ref = tuple(rest)

    def remove(self) -> None:
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = reference()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks_dict_ref(), self.id, tuple(reference() for reference in self.extra_dict_ref)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks_dict, self.id, extra = state
        self._refer(OrderedDict() if hooks_dict is None else hooks_dict, [e for e in extra if e is not None])

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Node:
    """A step of backward: gradients of its outputs in, gradients of its inputs out.

    edges: where the gradients of the inputs go. shape, dtype: of the output (NumPy's terms), which gradients are brought to before the
    node sees them (a dtype of None leaves theirs); tuples of them when `outputs` is more than 1. sequence: grows with
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
    # True when `apply` can be told which edges count.
    prunes: ClassVar[bool] = False
    # True when the node adds up gradients of the examples of a vmap (`crossing.py`).
    sums: bool = False
    # True when the node keeps Tensors, and wants gradients that are.
    tells: bool = False
    any_tells: ClassVar[bool] = False  # whether any such node was ever recorded
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

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle '{self.name()}' object")

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

    def entry(
        self, grad: Any, F: Any, edges: Sequence[Edge]
    ) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """(function, arguments) whose call is all that `apply` does on arrays, for a tape; None where it runs ops.

        edges: what the function is to be told of `self.edges`.
        """
        return None

    def memory(self) -> Any:
        """The array that the gradient which is being computed for this node may be written to, or None."""
        return None

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


class Error(Node):
    """A step of backward that raises. PyTorch gives its own the same name."""

    error: Exception

    def apply(self, grad: Any, F: Any) -> Sequence[Any]:
        raise self.error


def refuse(result: Tensor, error: Exception, edges: Iterable[Edge]) -> Tensor:
    """`result` as a tensor that seems to depend on what `edges` lead to; backward through it raises `error`."""
    out = result.detach()
    node = Error(tuple(e for e in edges if e is not NO_EDGE), out._array.shape, out._array.dtype)
    node.error = error
    out._grad_fn, out._requires_grad = node, True
    return out
