"""How tensors get into a `vmap` that runs once for all examples, and out of it, with their gradients the other way.

Within, the graph is of single examples, whose nodes hold the arrays of all (`backend/mapped`). A gradient that gets out of it,
to a tensor that all examples share, is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from ..backend.mapped.array import MappedArray, alike, at, innermost, repeated
from ..backend.registry import backend_for
from ..core.errors import NotMapped
from ..core.modes import crossed, mode
from ..core.tensor import Tensor, wrap
from ..core.upcalls import room_for_examples, seed_of_examples, summed
from .accumulate import edge_of
from .nodes import NO_EDGE, Edge, Node


class Level:
    """A vmap of `count` examples. Its number is no other's as long as there is a graph of it."""

    __slots__ = ("__weakref__", "count", "number")

    def __init__(self, count: int) -> None:
        self.count = count
        self.number = 1 + max((level.within.number for level in mode.levels if level.at_once), default=0)
        while _levels.setdefault(self.number, self) is not self:
            self.number += 1

    @property
    def running(self) -> bool:
        """Whether this thread is within it."""
        return any(level.at_once and level.within is self for level in mode.levels)


_levels: WeakValueDictionary[int, Level] = WeakValueDictionary()


def level_of(array: MappedArray) -> Level:
    """The innermost vmap whose examples `array` has."""
    return _levels[array.level]


class Crossing(Node):
    """A step of backward into a vmap or out of it. back: what becomes of the gradient, as a Tensor."""

    special = True  # what it returns may be the memory of what it was given
    back: Callable[[Tensor], Tensor]

    def apply(self, grad: Any, F: Any) -> tuple[Any]:
        return (self.back(grad),) if isinstance(grad, Tensor) else (self.back(wrap(grad))._array,)


def enter(tensor: Tensor, dim: int | None, level: Level) -> Tensor:
    """`tensor` as it is within the vmap: one of the examples along `dim`, or, without one, the same for all."""
    back = _sum_at(level) if dim is None else lambda grad: leave(grad, dim, level)
    return _recorded(tensor, _entered(tensor._array, dim, level), back)


def leave(tensor: Tensor, dim: int | None, level: Level) -> Tensor:
    """`tensor` of the vmap as it is outside: the examples along `dim`, or, without one, their sum."""
    if level.number not in getattr(tensor._array, "levels", ()):  # one that is the same for all
        tensor = enter(tensor, None, level)
    return _recorded(tensor, _left(tensor._array, dim, level), lambda grad: enter(grad, dim, level))


def _recorded(source: Tensor, array: Any, back: Callable[[Tensor], Tensor]) -> Tensor:
    out = wrap(array)
    out._versions = source._versions  # so that writes to one are noticed where the other was kept
    if source._requires_grad and mode.enabled:
        out._requires_grad, out._grad_fn = True, _crossing(edge_of(source), array, back)
    return out


def _crossing(edge: Edge, array: Any, back: Callable[[Tensor], Tensor]) -> Crossing:
    if not crossed:
        crossed.append(innermost)
    node = Crossing((edge,), array.shape, array.dtype)
    node.back = back
    return node


def _entered(array: Any, dim: int | None, level: Level) -> Any:
    above = getattr(array, "level", 0)
    if above > level.number:
        return at(above, _entered(array.whole, dim if dim is None else dim % array.ndim + 1, level))
    if dim is None:
        return at(level.number, repeated(array, level.count))
    F, dim = backend_for(array), dim % array.ndim
    return at(level.number, F.permute(array, (dim, *[d for d in range(array.ndim) if d != dim])))


def _left(array: Any, dim: int | None, level: Level) -> Any:
    place = 0 if dim is None else dim % (array.ndim + 1)
    if array.level > level.number:
        return at(array.level, _left(array.whole, dim if dim is None else place + 1, level))
    if dim is None:
        return array.total()
    whole, F = array.whole, backend_for(array.whole)
    return F.permute(whole, (*range(1, place + 1), 0, *range(place + 1, array.ndim + 1)))


@summed.register
def _summed(edge: Edge, array: Any, result: MappedArray) -> Edge:
    """Where the gradient goes of a tensor with `array` that took part in `result`, by sums over examples that it does not have."""
    have = getattr(array, "levels", ())
    for number in () if edge is NO_EDGE else reversed(result.levels):
        if number not in have:
            node = _crossing(edge, array, _sum_at(_levels[number]))
            node.sums = True
            edge = node, 0
    return edge


def _sum_at(level: Level) -> Callable[[Tensor], Tensor]:
    """What becomes of a gradient of what all examples share: within the vmap each has its own."""
    return lambda grad: grad if level.running else leave(grad, None, level)


@seed_of_examples.register
def _seed(target: Any, seed: Tensor, retain_graph: bool) -> Tensor:
    """`seed` for all examples that `target` has: of their own, or else the same for all."""
    if not isinstance(target, Tensor) or not (retain_graph or isinstance(target._array, MappedArray)):
        raise NotMapped  # a graph from outside that is not kept is freed by the loop, at its end
    for number in reversed(getattr(target._array, "levels", ())):
        if number not in getattr(seed._array, "levels", ()):
            seed = enter(seed, None, _levels[number])
    return seed


@room_for_examples.register
def _room(made: Tensor, like: Tensor) -> Tensor:
    made._array = alike(like._array, made._array)
    return made
