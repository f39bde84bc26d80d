"""One launch for the elements of many arrays: a table says where each of them lies.

Elements are dealt out in chunks, each of one array. A kernel takes the chunks' arrays by number, `segment`, beside the
table's `rows`: for each array its first chunk, its length and the addresses of what belongs together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from ..device import capturing
from .capture import constant, here

Array = Any

CHUNK = 1024
_KEPT = 16  # tables: of gradients that stay where they are, nothing is copied

INPUTS = "int64 segment, raw int64 rows, int64 width"
"""The first inputs of a kernel over several arrays; `tables` makes the arguments."""

# Address k of `row` is that of an array of the target, and `place` the element of it.
PLACE = f"""
    const long long* row = &rows[segment * width];
    const long long place = i - row[0] * {CHUNK};
    if (place >= row[1]) continue;
"""


# As `PLACE`, for a warp a chunk: its lane takes the places from `first` to `last`, 32 apart.
PLACES = f"""
    const long long* row = &rows[segment * width];
    const long long begin = (i / 32 - row[0]) * {CHUNK}, first = begin + i % 32;
    const long long last = begin + {CHUNK} < row[1] ? begin + {CHUNK} : row[1];
"""


def tables(targets: Sequence[Sequence[Array]], lanes: int = CHUNK) -> tuple[Array, Array, int]:
    """The arguments for `INPUTS`: of each target, contiguous arrays of one length, the addresses in order.

    lanes: threads for a chunk.
    """
    return tables_of([[target[0].size, *[a.data.ptr for a in target]] for target in targets], lanes)


def tables_of(listed: Sequence[Sequence[int]], lanes: int = CHUNK) -> tuple[Array, Array, int]:
    """As `tables`, of a length and the numbers, such as addresses, that a kernel finds from `row[2]` on."""
    rows = np.array([[0, *numbers] for numbers in listed], np.int64)
    chunks, width = -(-rows[:, 1] // CHUNK), rows.shape[1]
    rows[:, 0] = np.cumsum(chunks) - chunks
    where = here()
    of_chunk = uncached(_of_chunk)(where, chunks.tobytes())
    return (
        cupy.broadcast_to(of_chunk[:, None], (of_chunk.size, lanes)),
        uncached(_rows)(where, rows.tobytes(), width),
        width,
    )


def uncached(made: Any) -> Any:
    """A cached function; while a graph is captured the function itself, since the graph keeps what it uses."""
    return made if capturing.now is None else made.__wrapped__


@functools.lru_cache(maxsize=_KEPT)
def _of_chunk(where: tuple[int, int], chunks: bytes) -> Array:
    """The number of each chunk's row on the current GPU; lengths stay where gradients move."""
    counts = np.frombuffer(chunks, np.int64)
    return constant(np.repeat(np.arange(len(counts)), counts))


@functools.lru_cache(maxsize=_KEPT)
def _rows(where: tuple[int, int], listed: bytes, width: int) -> Array:
    """The rows on the current GPU."""
    return constant(np.frombuffer(listed, np.int64).reshape(-1, width))
