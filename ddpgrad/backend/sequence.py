"""Where the rows of packed sequences lie: `batch_sizes[t]` rows of step t, one step after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np

BatchSizes = tuple[int, ...]


def steps(batch_sizes: BatchSizes, reverse: bool) -> Iterator[tuple[int, int]]:
    """(first row, number of rows) of each step, in the order of computation."""
    starts = [0, *accumulate(batch_sizes)]
    order = range(len(batch_sizes))
    return ((starts[t], batch_sizes[t]) for t in (reversed(order) if reverse else order))


def previous_rows(batch_sizes: BatchSizes, reverse: bool) -> np.ndarray[Any, Any]:
    """For each row, where the state before it lies in (initial state, states of all rows)."""
    batch = batch_sizes[0]
    before = np.arange(batch)
    rows = np.empty(sum(batch_sizes), np.int64)
    for start, size in steps(batch_sizes, reverse):
        rows[start : start + size] = before[:size]
        before[:size] = batch + start + np.arange(size)
    return rows


def last_rows(batch_sizes: BatchSizes, reverse: bool) -> np.ndarray[Any, Any]:
    """Where the last state of each sequence lies among the rows."""
    last = np.zeros(batch_sizes[0], np.int64)
    for start, size in steps(batch_sizes, reverse):
        last[:size] = start + np.arange(size)
    return last
