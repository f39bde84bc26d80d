"""The context `ctx` of a `Function`, and the tensors saved with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from ..core.errors import GraphError
from ..core.tensor import Tensor
from .accumulate import edge_of, tensor_at
from .nodes import Edge, Node
from .saved import Pack, SavedTensor, Unpack, current_hooks, packed

OF_THE_NODE = frozenset(("name", "next_functions", "metadata", "register_hook", "register_prehook"))
"""What users may ask for of a node and find at `ctx` too."""


class FunctionCtx:
    """What `forward` and `backward` of a `Function` call `ctx`: what one call remembers.

    needs_input_grad: for each argument of `forward`, whether its gradient is asked for. Any
    other attribute may be set and is found again in `backward`.
    """

    _given_away = False  # what was saved went to who asked for it first

    def __init__(self, node: Node, args: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(isinstance(a, Tensor) and a._requires_grad for a in args)
        self.materialize_grads = True
        self._materialize_non_diff_grads = True  # PyTorch's name; set to False, such outputs get None
        self.to_save: tuple[Any, ...] = ()
        self.to_save_forward: tuple[Any, ...] = ()
        self.dirty_tensors: tuple[Tensor, ...] = ()
        self.non_differentiable: tuple[Tensor, ...] = ()
        self._saved: tuple[Saved | None, ...] | None = ()
        self._saved_forward: tuple[Saved | None, ...] | None = ()
        self._node = ref(node)  # weak: the node holds this object

    def __getattr__(self, name: str) -> Any:
        # In PyTorch this object is the node itself.
        node = self._node() if name in OF_THE_NODE else None
        if node is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(node, name)

    # -- what users call in forward or setup_context ---------------------------------------

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs, outputs or other tensors for backward; changing them in place is noticed."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `jvp`, which finds them in `saved_tensors`."""
        self.to_save_forward = tensors

    def keep(self, save: Callable[[Tensor], Saved]) -> None:
        """Save what forward has named, once it is known that there will be a backward. `TypeError` for what is no tensor."""
        for name, tensors in (("backward", self.to_save), ("forward", self.to_save_forward)):
            for i, t in enumerate(tensors):
                if t is not None and not isinstance(t, Tensor):
                    raise TypeError(
                        f"save_for_{name} can only save variables, but argument {i} is of type {type(t).__name__}; "
                        "set it as an attribute of ctx"
                    )
        self._saved, self._saved_forward = (
            tuple(None if t is None else save(t) for t in tensors)
            for tensors in (self.to_save, self.to_save_forward)
        )

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
        node, saved = self._still_saved()
        found = tuple([None if s is None else s.unpack(node, i) for i, s in enumerate(saved)])
        if node.function.clear_saved_tensors_on_access:  # type: ignore[attr-defined]  the node of a Function
            self._saved, self._given_away = None, True
        return found

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """`saved_tensors` by its former name."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        """The saved tensors as objects that take hooks."""
        self._still_saved()
        return tuple([self._raw(i) for i in range(len(self._saved or ()))])

    def _still_saved(self) -> tuple[Node, tuple[Saved | None, ...]]:
        """The node and what it saved. `GraphError` where that is gone."""
        node = self._node()
        if self._given_away:
            raise RuntimeError(
                "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the Function: "
                "keep what it returns."
            )
        if self._saved is None or node is None:
            raise GraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed): {'the graph is gone' if node is None else node.name()}. Specify "
                "retain_graph=True in the first call of backward() or autograd.grad()."
            )
        return node, self._saved

    def _raw(self, i: int) -> SavedTensor:
        def replace(pack: Pack, unpack: Unpack) -> None:
            saved = list(self._saved or ())
            node = self._node()
            assert node is not None
            saved[i] = PackedSaved(saved[i].unpack(node, i), node, pack, unpack)  # type: ignore[union-attr]
            self._saved = tuple(saved)

        kept = (self._saved or ())[i]
        return SavedTensor.of(None if isinstance(kept, PackedSaved) else replace, empty=kept is None)


class Saved:
    """A saved tensor: its array, version and place in the graph, but the Tensor itself only weakly.

    An output of the function would otherwise keep its node, which keeps the output, alive.
    """

    __slots__ = ("array", "counter", "edge", "tensor", "version")

    def __init__(self, tensor: Tensor, node: Node) -> None:
        self.tensor = ref(tensor)
        self.array = tensor._array
        self.counter = tensor._versions
        self.version = tensor._versions[0]
        edge = edge_of(tensor)
        # For an output of `node` itself only the number: no cycle.
        self.edge: Edge = (None, edge[1] + 1) if edge[0] is node else edge

    def unpack(self, node: Node, i: int) -> Tensor:
        """The tensor again. `GraphError` when it was changed in place since."""
        if self.counter[0] != self.version:
            raise GraphError(
                f"one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"saved tensor {i} of {node.name()} (shape {list(self.array.shape)}) is at version "
                f"{self.counter[0]}; expected version {self.version} instead. Write the operation out of place, or "
                "clone() first."
            )
        target, nr = self.edge
        edge = (node, nr - 1) if target is None and nr else self.edge
        tensor = self.tensor()
        if tensor is not None and tensor._array is self.array and edge_of(tensor) == edge:
            return tensor
        again = tensor_at(self.array, edge)
        again._versions = self.counter
        return again


class PackedSaved(Saved):
    """A saved tensor that a hook has packed."""

    __slots__ = ("packed",)

    def __init__(self, tensor: Tensor, node: Node, pack: Pack, unpack: Unpack) -> None:
        edge = edge_of(tensor)
        own = edge[0] is node
        self.edge = (None, edge[1] + 1) if own else edge
        self.packed = packed(tensor.detach() if own else tensor, pack, unpack)

    def unpack(self, node: Node, i: int) -> Tensor:
        tensor = self.packed.unpack()
        target, nr = self.edge
        if target is None and not nr:
            return tensor
        return tensor_at(tensor._array, (node, nr - 1) if target is None else self.edge)


def save(tensor: Tensor, node: Node) -> Saved:
    hooks = current_hooks()
    return Saved(tensor, node) if hooks is None else PackedSaved(tensor, node, *hooks)
