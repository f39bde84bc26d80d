"""One launch for the elements of many arrays: a table says where each of them lies.

Elements are dealt out in chunks, each of one array. A kernel takes the chunks' arrays by number, `segment`, beside the
table's `rows`: for each array its first chunk, its length and the addresses of what belongs together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

Array = Any

_CHUNK = 1024
_KEPT = 16  # tables: of gradients that stay where they are, nothing is copied

_tables: dict[tuple[int, bytes], tuple[Array, Array]] = {}

INPUTS = "int64 segment, raw int64 rows, int64 width"
"""The first inputs of a kernel over several arrays; `tables` makes the arguments."""

# Address k of `row` is that of an array of the target, and `place` the element of it.
PLACE = f"""
    const long long* row = &rows[segment * width];
    const long long place = i - row[0] * {_CHUNK};
    if (place >= row[1]) continue;
"""


# As `PLACE`, for a warp a chunk: its lane takes the places from `first` to `last`, 32 apart.
PLACES = f"""
    const long long* row = &rows[segment * width];
    const long long begin = (i / 32 - row[0]) * {_CHUNK}, first = begin + i % 32;
    const long long last = begin + {_CHUNK} < row[1] ? begin + {_CHUNK} : row[1];
"""


def tables(targets: Sequence[Sequence[Array]], lanes: int = _CHUNK) -> tuple[Array, Array, int]:
    """The arguments for `INPUTS`: of each target, contiguous arrays of one length, the addresses in order.

    lanes: threads for a chunk.
    """
    lengths = np.array([target[0].size for target in targets], np.int64)
    chunks = -(-lengths // _CHUNK)
    rows = np.array([[0, 0, *[a.data.ptr for a in target]] for target in targets], np.int64)
    rows[:, 0], rows[:, 1] = np.cumsum(chunks) - chunks, lengths
    key = cupy.cuda.runtime.getDevice(), rows.tobytes()
    found = _tables.get(key)
    if found is None:
        if len(_tables) >= _KEPT:
            _tables.pop(next(iter(_tables)))
        of_chunk = cupy.array(np.repeat(np.arange(len(lengths)), chunks))
        found = _tables[key] = of_chunk, cupy.array(rows)
    of_chunk, on_gpu = found
    return cupy.broadcast_to(of_chunk[:, None], (of_chunk.size, lanes)), on_gpu, rows.shape[1]
