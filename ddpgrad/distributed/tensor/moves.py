"""From one placement of a tensor to another: what a rank sends, adds up, cuts out, on raw arrays of its part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.registry import backend_for
from ...core import spans
from ..communicator.communicator import Communicator
from .exchange import all_reduce, fresh, start_all_gather, told
from .placements import REPLICATE, Placement, divisions

if TYPE_CHECKING:
    from .layout import Layout

Array = Any


def moved(part: Array, layout: Layout, target: Sequence[Placement], label: str) -> Array:
    """`part`, which lies as `layout` says, as it lies under `target`; itself where nothing changes. Collective.

    What is divided is put together from the last division to the first, and divided in the other order, so that several
    dimensions of the mesh that divide one of the tensor take their turns.
    """
    now, mesh = list(layout.placements), layout.mesh
    if now == list(target):
        return part
    for d, (p, wanted) in enumerate(zip(now, target, strict=True)):
        if p != wanted and p.is_partial() and not wanted.divides():
            part = reduced(mesh.get_group(d).communicator, part, p.reduce_op, label)  # type: ignore[attr-defined]
            now[d] = REPLICATE
    before, after = divisions(now, mesh), divisions(target, mesh)
    for axis, order in before.items():
        for n in reversed(range(_alike(order, after.get(axis, ())), len(order))):
            length = _length(layout, axis, order[:n])
            part = joined(mesh.get_group(order[n]).communicator, part, axis, length, label)
    for axis, order in after.items():
        for d in order[_alike(order, before.get(axis, ())) :]:
            group, p = mesh.get_group(d).communicator, now[d]
            if p.is_partial():
                part = reduce_scattered(group, part, axis, p.reduce_op, label)  # type: ignore[attr-defined]
            else:
                part = cut(part, axis, group.rank, group.size).copy()
    for d, (p, wanted) in enumerate(zip(now, target, strict=True)):
        if wanted.is_partial() and not p.is_partial():
            part = _as_share(part, wanted.reduce_op, mesh.get_local_rank(d))  # type: ignore[attr-defined]
    return part


def _alike(order: Sequence[int], other: Sequence[int]) -> int:
    """How many divisions are the first of both."""
    pairs = zip(order, other, strict=False)
    return next((n for n, (d, e) in enumerate(pairs) if d != e), min(len(order), len(other)))


def _length(layout: Layout, axis: int, order: Sequence[int]) -> int:
    """How long this rank's part is along `axis` when the dimensions `order` of the mesh have divided it."""
    length, mesh = layout.shape[axis], layout.mesh
    for d in order:
        chunk = -(-length // mesh.size(d))
        length = max(0, min(chunk, length - mesh.get_local_rank(d) * chunk))
    return length


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
    began = spans.now()
    rows = start_all_gather(c, sent, label, background=False)()
    told("c10d_functional.all_gather_into_tensor", c, sent, began)
    if not axis:
        return rows.reshape(-1, *shape[1:])[:length]
    before = (slice(None),) * axis
    lengths = [min((r + 1) * chunk, length) - min(r * chunk, length) for r in range(c.size)]
    return backend_for(part).cat([rows[r][(*before, slice(n))] for r, n in enumerate(lengths)], axis)


def reduced(c: Communicator, part: Array, op: str, label: str) -> Array:
    """What the ranks' arrays make up together, in memory of its own."""
    whole, began = _copy(part), spans.now()
    all_reduce(c, whole, op, label)
    told("c10d_functional.all_reduce", c, whole, began)
    return whole


def reduce_scattered(c: Communicator, part: Array, axis: int, op: str, label: str) -> Array:
    """This rank's part along `axis` of what the ranks' arrays make up together."""
    if part.shape[axis] % c.size or not isinstance(part, np.ndarray):
        return cut(reduced(c, part, op, label), axis, c.rank, c.size).copy()
    first = np.ascontiguousarray(np.moveaxis(part, axis, 0))
    began = spans.now()
    own = c.reduce_scatter(first, op, label)
    told("c10d_functional.reduce_scatter_tensor", c, first, began)
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
