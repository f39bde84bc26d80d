"""From one placement of a tensor to another: what a rank sends, adds up, cuts out, on raw arrays of its part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.registry import backend_for
from ..communicator.communicator import Communicator
from .exchange import all_reduce, fresh, start_all_gather
from .placements import REPLICATE, Placement, spans_of

if TYPE_CHECKING:
    from .layout import Layout

Array = Any


def moved(part: Array, layout: Layout, target: Sequence[Placement], label: str) -> Array:
    """`part`, which lies as `layout` says, as it lies under `target`; itself where nothing changes. Collective.

    What is divided is put together from the last dimension of the mesh to the first, and divided in the other order, so that
    several that divide one dimension of the tensor take their turns.
    """
    now = list(layout.placements)
    if now == list(target):
        return part
    mesh, changes = layout.mesh, _to_undo(now, target)
    for d in sorted(changes, reverse=True):
        p = now[d]
        if p.is_shard():
            length = _length(now, layout, d)
            part = joined(mesh.get_group(d).communicator, part, p.dim, length, label)  # type: ignore[attr-defined]
        elif p.is_partial() and not target[d].is_shard():
            part = reduced(mesh.get_group(d).communicator, part, p.reduce_op, label)  # type: ignore[attr-defined]
        else:
            continue
        now[d] = REPLICATE
    for d, (p, wanted) in enumerate(zip(list(now), target, strict=True)):
        if p == wanted:
            continue
        group = mesh.get_group(d).communicator
        if wanted.is_shard():
            axis: int = wanted.dim  # type: ignore[attr-defined]
            if p.is_partial():
                part = reduce_scattered(group, part, axis, p.reduce_op, label)  # type: ignore[attr-defined]
            else:
                part = cut(part, axis, group.rank, group.size).copy()
        elif wanted.is_partial() and p.is_replicate():
            part = _as_share(part, wanted.reduce_op, group.rank)  # type: ignore[attr-defined]
        now[d] = wanted
    return part


def _to_undo(now: Sequence[Placement], target: Sequence[Placement]) -> set[int]:
    """The dimensions of the mesh whose placements are taken back: those that change, and those that divide what they did."""
    found: set[int] = set()
    for d, (p, wanted) in enumerate(zip(now, target, strict=True)):
        if p != wanted:
            found.add(d)
            axes = {x.dim for x in (p, wanted) if x.is_shard()}  # type: ignore[attr-defined]
            found |= {e for e in range(d + 1, len(now)) if now[e].is_shard() and now[e].dim in axes}  # type: ignore[attr-defined]
    return found


def _length(now: Sequence[Placement], layout: Layout, d: int) -> int:
    """How long the dimension that mesh dimension `d` divides is before it does."""
    axis = now[d].dim  # type: ignore[attr-defined]
    start, stop = spans_of(now[:d], layout.shape, layout.mesh)[axis]
    return stop - start


def cut(whole: Array, axis: int, rank: int, size: int) -> Array:
    """The part of `rank` of `size` along `axis`, in the same memory."""
    n = whole.shape[axis]
    chunk = -(-n // size)
    return whole[(slice(None),) * axis + (slice(min(rank * chunk, n), min((rank + 1) * chunk, n)),)]


def joined(c: Communicator, part: Array, axis: int, length: int, label: str) -> Array:
    """The parts of all ranks of `c`, one after another along `axis`, which then has `length`."""
    chunk = -(-length // c.size)
    shape = (*part.shape[:axis], chunk, *part.shape[axis + 1 :])
    if part.shape == shape:
        sent = backend_for(part).contiguous(part)
    else:
        sent = fresh(part, shape, part.dtype)
        sent[...] = 0
        sent[(slice(None),) * axis + (slice(part.shape[axis]),)] = part
    rows = start_all_gather(c, sent, label, background=False)()
    if not axis:
        return rows.reshape(-1, *shape[1:])[:length]
    before = (slice(None),) * axis
    lengths = [min((r + 1) * chunk, length) - min(r * chunk, length) for r in range(c.size)]
    return backend_for(part).cat([rows[r][(*before, slice(n))] for r, n in enumerate(lengths)], axis)


def reduced(c: Communicator, part: Array, op: str, label: str) -> Array:
    """What the ranks' arrays make up together, in memory of its own."""
    whole = _copy(part)
    all_reduce(c, whole, op, label)
    return whole


def reduce_scattered(c: Communicator, part: Array, axis: int, op: str, label: str) -> Array:
    """This rank's part along `axis` of what the ranks' arrays make up together."""
    if part.shape[axis] % c.size or not isinstance(part, np.ndarray):
        return cut(reduced(c, part, op, label), axis, c.rank, c.size).copy()
    first = np.ascontiguousarray(np.moveaxis(part, axis, 0))
    own = c.reduce_scatter(first, op, label)
    return np.ascontiguousarray(np.moveaxis(own, 0, axis))


def _copy(part: Array) -> Array:
    whole = fresh(part, part.shape, part.dtype)
    whole[...] = part
    return whole


def _as_share(part: Array, op: str, rank: int) -> Array:
    """What a rank contributes where all have the whole: one of them has it in a sum."""
    if op in ("sum", "product") and rank:
        share = _copy(part)
        share[...] = 0 if op == "sum" else 1
        return share
    return part
