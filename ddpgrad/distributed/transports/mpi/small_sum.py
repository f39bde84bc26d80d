"""Sums of small arrays over many processes: up a tree of processes to the first, and down again.

That takes 2 log2 N rounds, in which a process has at most 2 log2 N messages. One gather of everything takes half of the
rounds, but its bytes, and the additions in each process, grow with the number of ranks: it is for few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...protocol import tree
from .exchange import Exchange


def add(arrays: Sequence[np.ndarray], op: str, exchange: Exchange, blocks: Sequence[range], me: int) -> None:
    """Combine the arrays of all ranks in the order of `tree`, in place. Collective between processes.

    arrays: of the ranks of this process, which has the number `me`; blocks: the ranks of each process.
    """
    world, first = blocks[-1].stop, arrays[0]
    low, high = blocks[me].start, blocks[me].stop
    wide = tree.wide_dtype(first.dtype)
    parts = {part: np.empty(first.size, wide) for part in tree.frontier(low, high, world)}
    for part, total in parts.items():
        tree.partial_into(total, [arrays[rank - low] for rank in part], op)
    far = 1
    while far < len(blocks) and not me & far:
        if me + far < len(blocks):
            high = blocks[min(me + 2 * far, len(blocks)) - 1].stop
            theirs = tree.frontier(blocks[me + far].start, high, world)
            rows = np.empty((len(theirs), first.size), wide)
            exchange.receive(rows.reshape(-1).view(np.uint8), me + far)
            parts = tree.merged(parts | dict(zip(theirs, rows, strict=True)), low, high, world, op)
        far <<= 1
    if me:
        exchange.send(np.concatenate(list(parts.values())).view(np.uint8), me - far)
    else:
        tree.join_into(first, parts, world, op)
    exchange.broadcast(first.view(np.uint8), 0)
    for array in arrays[1:]:
        array[...] = first
