"""`swap_tensors`: two tensors change places, for all that refers to them."""

from __future__ import annotations

import weakref
from typing import Any

from ..core.tensor import (
    Tensor,
    _everything,  # pyright: ignore[reportAttributeAccessIssue]
)


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Give each tensor all that the other is: class, attributes, memory, gradient and history.

    Whoever refers to `t1` sees what was `t2`. RuntimeError where something refers to one of them weakly, as a graph that saved
    it does, or where it has views; a graph that leads to it as a leaf cannot be walked backward any more.
    Source: https://docs.pytorch.org/docs/stable/future_mod.html
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if any(view() is not None for view in tensor._plain_views or ()):
            raise RuntimeError(f"Cannot swap {name}: it has views, which would go on seeing its memory")
        if {*map(id, weakref.getweakrefs(tensor))} - {*map(id, _siblings(tensor))}:
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    for tensor in (t1, t2):
        node = tensor._accumulator and tensor._accumulator()
        if node is not None:
            node.register_prehook(_refuse)
        tensor._accumulator = tensor._accumulator_kept = tensor._accumulator_hooks = None
    first, second = weakref.ref(t1), weakref.ref(t2)
    lists = {id(known): known for known in map(_siblings, (t1, t2))}
    for known in lists.values():
        known[:] = [second if view is first else first if view is second else view for view in known]
    slots = _slots(t1) | _slots(t2)
    held = [({s: getattr(t, s) for s in slots if hasattr(t, s)}, _everything.__get__(t)) for t in (t1, t2)]
    t1.__class__, t2.__class__ = type(t2), type(t1)
    for tensor, (values, attributes) in ((t1, held[1]), (t2, held[0])):
        _everything.__set__(tensor, attributes)
        for slot in slots:
            if slot in values:
                setattr(tensor, slot, values[slot])
            elif hasattr(tensor, slot):
                delattr(tensor, slot)


def _siblings(tensor: Tensor) -> list[Any]:
    """Where the base of a view without history knows it, with its other views."""
    return [] if tensor._view is None else tensor._view.base._plain_views or []


def _slots(tensor: Tensor) -> set[str]:
    """The slots of Tensor that hold something of one tensor, and those of its subclass."""
    names: set[str] = set()
    for kind in type(tensor).__mro__[:-1]:
        own = kind.__dict__.get("__slots__", ())
        names |= {own} if isinstance(own, str) else set(own)
    return names - {"__dict__", "__weakref__"}


def _refuse(*grads: Any) -> None:
    raise RuntimeError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: backward was called through a graph that "
        "leads to a tensor that was swapped since. Swap before running forward, or after backward."
    )
