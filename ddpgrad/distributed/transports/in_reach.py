"""Collectives over arrays that this process can read, those of all ranks: the results for the ranks that it hosts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..protocol import tree
from .base import BROADCAST, EXCHANGE, GATHER, REDUCE, REDUCE_SCATTER, Call


def complete(calls: Sequence[Call], ranks: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
    """Make the results of `calls`, of `ranks`, from the arrays of all ranks (none: there is nothing to make)."""
    kind = calls[0].kind
    if not arrays:
        return
    if kind == REDUCE:
        tree.reduce_into([call.array for call in calls], arrays, calls[0].op)
    elif kind == REDUCE_SCATTER:
        reduce_parts(calls, ranks, arrays)
    elif kind == BROADCAST:
        spread(calls, ranks, arrays[calls[0].src])
    elif kind == GATHER:
        collect(calls, arrays)
    elif kind == EXCHANGE:
        for rank, call in zip(ranks, calls, strict=True):
            assert call.result is not None and call.counts is not None
            for source, array in enumerate(arrays):
                there, here = call.counts.block(source, rank)
                call.result[here] = array[there]


def reduce_parts(
    calls: Sequence[Call], ranks: Sequence[int], arrays: Sequence[np.ndarray], start: int = 0
) -> None:
    """Each rank's part of the sum; from element `start` on, if `arrays` are pieces."""
    stop = start + arrays[0].size // (len(arrays) or 1)
    for rank, call in zip(ranks, calls, strict=True):
        assert call.result is not None
        tree.reduce_part(call.result[start:stop], arrays, rank, call.op)


def spread(calls: Sequence[Call], ranks: Sequence[int], source: np.ndarray, start: int = 0) -> None:
    """What the source has, for all others; from element `start` on, if it is a piece."""
    for rank, call in zip(ranks, calls, strict=True):
        if rank != call.src:
            call.array[start : start + source.size] = source


def collect(calls: Sequence[Call], arrays: Sequence[np.ndarray], start: int = 0) -> None:
    """Everyone's array, for all; from element `start` on, if `arrays` are pieces."""
    for call in calls:
        assert call.result is not None
        for row, array in zip(call.result, arrays, strict=True):
            row[start : start + array.size] = array
