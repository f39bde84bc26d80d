"""Exchanges between ranks, packed by processes: for transports that move bytes between processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..calls import AllToAll


class Piece(NamedTuple):
    """One message to and from each process: bytes one after the other by process, and how many for each."""

    send: np.ndarray
    sent: list[int]
    receive: np.ndarray
    received: list[int]


def pieces(calls: Sequence[AllToAll], ranks: range, blocks: Sequence[range], limit: int) -> Iterator[Piece]:
    """Pieces of an exchange, the same number in all processes; fill `receive` before asking for the next.

    calls: of the ranks in `ranks`, which are hosted here. blocks: the ranks of each process.
    limit: bytes that a piece may take, in about.
    """
    counts, dtype = calls[0].counts, calls[0].array.dtype
    here = list(zip(ranks, calls, strict=True))
    most_ranks = max(len(block) for block in blocks)
    length = max(1, limit // blocks[-1].stop // most_ranks // dtype.itemsize)
    for start in range(0, int(counts.table.max()), length):
        table = np.clip(counts.table - start, 0, length) * dtype.itemsize
        mine = slice(ranks.start, ranks.stop)
        sent = [int(table[mine, block.start : block.stop].sum()) for block in blocks]
        received = [int(table[block.start : block.stop, mine].sum()) for block in blocks]
        parts = [
            call.array[counts.block(rank, target)[0]][start : start + length]
            for block in blocks
            for rank, call in here
            for target in block
        ]
        send, receive = np.concatenate(parts), np.empty(sum(received) // dtype.itemsize, dtype)
        yield Piece(send.view(np.uint8), sent, receive.view(np.uint8), received)
        at = 0
        for source in range(blocks[-1].stop):
            for rank, call in here:
                part = call.result[counts.block(source, rank)[1]][start : start + length]
                part[...] = receive[at : at + part.size]
                at += part.size


def starts(sizes: Sequence[int]) -> list[int]:
    """Where parts of these sizes begin, one after the other."""
    return [0, *accumulate(sizes[:-1])]
