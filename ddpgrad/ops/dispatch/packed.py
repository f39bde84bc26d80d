"""Nodes of ops whose saved tensors were packed by hooks, and `node._saved_…`: the saved values by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from ...autograd.accumulate import tensor_at
from ...autograd.nodes import Edge, Node
from ...autograd.saved import Pack, Packed, SavedTensor, Unpack, packed
from ...backend.registry import backend_for
from ...core.size import Size, new_size
from ...core.tensor import Tensor, wrap
from ...core.upcalls import pack_kept, saved_attribute
from .node import OpNode

# PyTorch's names of what ours call otherwise.
_OURS = {"self": "input", "result": "out", "exponent": "other", "indices": "index"}


class PackedOpNode(OpNode):
    """An `OpNode` that keeps what a pack hook made of some of its arrays, and unpacks it to run.

    Version counters say nothing about what a hook has put elsewhere: they are not compared, unless the hook only keeps
    the place of what nobody writes to.
    """

    __slots__ = ()

    def pack(self, pack: Pack, unpack: Unpack, only: int | None = None, compared: bool = False) -> None:
        """Pack every kept array, or the one at place `only`. compared: version counters still are."""
        kept: list[Any] = list(self._kept or ())
        for i, value in enumerate(kept):
            if only is not None and i != only:
                continue
            if isinstance(value, list):
                kept[i] = [self._packed(i, k, v, pack, unpack) for k, v in enumerate(value)]
            else:
                kept[i] = self._packed(i, None, value, pack, unpack)
        self._kept = tuple(kept)
        if not compared:
            self._counters = self._versions = ()

    def _packed(self, i: int, k: int | None, value: Any, pack: Pack, unpack: Unpack) -> Any:
        return packed(tensor_kept(self, i, k, value), pack, unpack) if _is_array(value) else value

    def apply(self, grad: Any, F: Any, edges: Sequence[Edge] | None = None) -> Sequence[Any]:
        kept = self._kept
        if kept is not None:
            self._kept = tuple([_unpacked(value) for value in kept])
        try:
            return super().apply(grad, F, edges)
        finally:
            self._kept = kept

    def entry(self, grad: Any, F: Any, edges: Sequence[Edge]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        kept = self._kept
        if kept is not None:
            self._kept = tuple([_unpacked(value) for value in kept])
        try:
            return super().entry(grad, F, edges)
        finally:
            self._kept = kept

    def release(self) -> None:
        if self._kept:
            self.forget()

    def replace_output(self, target: Tensor) -> None:
        """The output was packed as it was; that its tensor has moved does not matter."""


@cache
def packed_kind(kind: type[OpNode]) -> type[OpNode]:
    """The class that a node of class `kind` becomes when a hook packs what it keeps."""
    if issubclass(kind, PackedOpNode):
        return kind
    return type(kind.__name__, (PackedOpNode, kind), {"__slots__": ()})


@pack_kept.register
def _pack_kept(node: Node, pack: Pack, unpack: Unpack) -> None:
    if isinstance(node, OpNode):
        _as_packed(node).pack(pack, unpack)


def _as_packed(node: OpNode) -> PackedOpNode:
    kind: Any = packed_kind(type(node.shown()))
    node.__class__ = kind
    return node  # type: ignore[return-value]


def _unpacked(value: Any) -> Any:
    if isinstance(value, Packed):
        return value.unpack()._array
    return [_unpacked(v) for v in value] if isinstance(value, list) else value


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array_interface__") or hasattr(value, "__cuda_array_interface__")


def tensor_kept(node: OpNode, i: int, k: int | None, array: Any) -> Tensor:
    """The array at place `i` of what is kept (element `k` of a list there), as the tensor that it was."""
    for place, which in node.op.kept_tensors:
        if place == i:
            return tensor_at(array, node.edges[which if k is None else k])
    return wrap(backend_for(array).asarray(array))


@saved_attribute.register
def _saved_attribute(node: Any, name: str) -> Any:
    """`_saved_<name>`: the value that the node keeps; `_raw_saved_<name>`: where hooks can be given to it."""
    prefix = "_raw_saved_" if name.startswith("_raw_saved_") else "_saved_"
    wanted = name.removeprefix(prefix)
    sizes = wanted.endswith("_sym_sizes")
    wanted = wanted.removesuffix("_sym_sizes")
    wanted = _OURS.get(wanted, wanted)
    if sizes:
        wanted += "_shape"
    if not name.startswith(prefix) or wanted not in node.op.keep:
        raise AttributeError(f"'{node.name()}' object has no attribute '{name}'")
    if node._kept is None:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            f"already been freed): {node.name()} has freed what it saved. Specify retain_graph=True in the first call "
            "of backward() or autograd.grad()."
        )
    i = node.op.keep.index(wanted)
    value = node._kept[i]
    if prefix == "_saved_":
        return _as_saved(node, i, value)
    if isinstance(value, Packed):
        return SavedTensor.of(None)
    return SavedTensor.of(partial(pack_one, node, i), empty=not _is_array(value))


def pack_one(node: OpNode, i: int, pack: Pack, unpack: Unpack, compared: bool = False) -> None:
    """Let `node` keep what a hook makes of the array at place `i`. compared: version counters still are."""
    _as_packed(node).pack(pack, unpack, i, compared)


def _as_saved(node: OpNode, i: int, value: Any, k: int | None = None) -> Any:
    if isinstance(value, list):
        return tuple(_as_saved(node, i, v, n) for n, v in enumerate(value))
    array = _unpacked(value)
    name = node.op.keep[i]
    if name.endswith("_shape"):
        return new_size(Size, array) if isinstance(array, tuple) else array
    if name == "index" and k is None:
        # None for what is no tensor, as PyTorch, where slices are an op of their own.
        parts = array if isinstance(array, tuple) else (array,)
        return tuple(wrap(part) if _is_array(part) else None for part in parts)
    if not _is_array(array):
        return array
    if name == "out":
        out = tensor_at(array, (node, 0))
        if node._counters:
            out._versions = node._counters[-1]
        return out
    return tensor_kept(node, i, k, array)
