"""Objects of all ranks, gathered on one of them up a binomial tree: no other rank gets more than its part of the tree.

So what a rank sends and receives is its own objects and those of the ranks below it, in at most log2 N messages of each kind,
where a gather for all would give each rank the objects of all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import plain_data
from .communicator import Communicator

_TAG = -(1 << 40)  # which no program uses


def gather_objects(c: Communicator, obj: object, dst: int = 0) -> list[Any] | None:
    """The objects of all ranks, by rank, on rank `dst`; None on the others. Plain data (see `plain_data`). Collective."""
    c.barrier(f"gather_object(dst={dst})")  # who calls something else is named
    place, far = (c.rank - dst) % c.size, 1
    parts = [plain_data.encode(obj)]
    while far < c.size and not place & far:
        if place + far < c.size:
            parts += _receive(c, (c.rank + far) % c.size, min(far, c.size - place - far))
        far <<= 1
    if place:
        _send(c, (c.rank - far) % c.size, parts)
        return None
    return [plain_data.decode(parts[(rank - dst) % c.size]) for rank in range(c.size)]


def _send(c: Communicator, target: int, parts: list[bytes]) -> None:
    sizes = np.array([len(part) for part in parts], np.int64)
    c.send(sizes, target, _TAG).wait()
    c.send(np.frombuffer(b"".join(parts), np.uint8), target, _TAG).wait()


def _receive(c: Communicator, source: int, count: int) -> list[bytes]:
    sizes = np.empty(count, np.int64)
    c.recv(sizes, source, _TAG)[0].wait()
    data = np.empty(int(sizes.sum()), np.uint8)
    c.recv(data, source, _TAG)[0].wait()
    ends = np.cumsum(sizes)
    return [data[end - size : end].tobytes() for end, size in zip(ends, sizes, strict=True)]
