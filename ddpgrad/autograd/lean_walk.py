"""Lean form of `Walk.drain`: the hot loop of backward."""

from __future__ import annotations

from heapq import heappop, heappush, heappushpop
from typing import TYPE_CHECKING, Any

from ..backend.registry import backend_for
from .accumulate import AccumulateGrad

if TYPE_CHECKING:
    from .nodes import Node
    from .walk import Walk


def lean_drain(walk: Walk, F: Any) -> None:
    """Lean form of `Walk.drain` for a pass on arrays, through the whole graph, without anomaly mode.

    Nodes of one output without hooks run here, without calls; others are left to `Walk.step`.
    """
    ready, buffers, waiting, owned = walk.ready, walk.buffers, walk.waiting, walk.owned
    release = not walk.retain_graph
    array_type = F.array_type
    only: Node | None = None  # ready as well: in a chain the heap stays empty
    while ready or only is not None:
        if only is None:
            node = heappop(ready)[1]
        else:
            node = heappushpop(ready, (-only.sequence, only))[1] if ready else only
            only = None
        walk.lean = not node.special
        if node.special:
            walk.step(node, F)
            continue
        grad = buffers.pop(node, None)
        here = F
        if grad.__class__ is not array_type:
            if not hasattr(grad, "levels"):
                buffers[node] = grad
                walk.lean = False
                walk.step(node, F)
                continue
            here = backend_for(grad)  # of the examples of a vmap
        results = node.apply(grad, here)
        if release:
            node.release()
        for (target, nr), g in zip(node.edges, results):  # noqa: B905
            if target is None:
                continue
            leaf = isinstance(target, AccumulateGrad)
            if g is None:
                pass
            elif g.shape == target.shape and g.dtype is target.dtype:
                # As `Walk.add`.
                if target not in buffers:
                    buffers[target] = g
                    if leaf and g is not grad and g.base is None:
                        owned.add(target)
                elif target in owned:
                    buffers[target] += g
                else:
                    buffers[target] = buffers[target] + g
                    if leaf:
                        owned.add(target)
            else:
                walk.add(target, nr, g, here, g is not grad and g.base is None)
            left = waiting[target] - 1
            if left:
                waiting[target] = left
            elif leaf:
                walk.leaf(target, F)
            elif only is None:
                only = target
            else:
                heappush(ready, (-target.sequence, target))
