"""What the graph keeps of gathered parameters: a place in a group, so that their memory can be dropped until backward.

A node that keeps an array within the memory of a group keeps the group and the place instead, and asks for the elements
when it runs. Nodes that keep nothing of that kind stay as they are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.nodes import Node, observers
from ...backend.elementary.shape import address_of
from ...core.tensor import Tensor, wrap
from ...ops.dispatch.node import OpNode
from ...ops.dispatch.packed import pack_one
from ..tensor.mesh_kernels import mesh_array
from ..tensor.parts import plain

if TYPE_CHECKING:
    from .group import Group

_groups: dict[int, Group] = {}
"""Of all ranks of this process, by the id of the object that owns their memory."""


def know(memory: Any, group: Group) -> None:
    """From now on nodes keep places in `memory`, which owns its elements."""
    if not _groups:
        observers.append(_look_at)
    _groups[id(_owner(memory))] = group


def forget(memory: Any) -> None:
    """The memory is no longer the group's."""
    del _groups[id(_owner(memory))]
    if not _groups:
        observers.remove(_look_at)


def _owner(memory: Any) -> Any:
    return memory if isinstance(memory, np.ndarray) else memory.data.mem


def _look_at(node: Node) -> None:
    """The observer of new nodes."""
    if not isinstance(node, OpNode):
        return
    for i, kept in enumerate(node._kept or ()):
        if isinstance(kept, Tensor):  # whose class may answer for its attributes
            continue
        kept = plain(kept)
        owner = (
            kept.base if isinstance(kept, np.ndarray) else getattr(getattr(kept, "data", None), "mem", None)
        )
        group = _groups.get(id(owner))
        if group is not None and group.memory is not None and owner is _owner(group.memory):
            pack_one(node, i, partial(_place, group), _elements, compared=True)


def _place(group: Group, tensor: Tensor) -> Any:
    array, layout = plain(tensor._array), getattr(tensor._array, "layout", None)
    assert group.memory is not None
    return (
        group,
        layout,
        group.state,
        address_of(array) - address_of(group.memory),
        array.shape,
        array.strides,
        array.dtype,
    )


def seen_at(memory: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    """The view of `memory` that begins after `offset` bytes."""
    if isinstance(memory, np.ndarray):
        return np.ndarray(shape, dtype, memory, offset, strides)
    return type(memory)(shape, dtype, memptr=memory.data + offset, strides=strides)


def _elements(place: Any) -> Tensor:
    group, layout, *where = place
    array = group.place_again(*where)
    return wrap(array if layout is None else mesh_array(array, layout))
