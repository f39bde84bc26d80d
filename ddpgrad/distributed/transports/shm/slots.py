"""Slots in the control page, through which small collectives travel: one for each rank and collective under way.

There are two rings of them: small ones for as many collectives as may be under way, and larger ones for a few.
"""

from __future__ import annotations

import numpy as np

from ....backend.elementary.shape import address_of
from ..calls import Call
from .control import DEPTH

SMALL = 1 << 12
"""Bytes of a small slot."""
LARGE = 1 << 17
"""Bytes of a larger slot at most. Up to there one round of flags is shorter than two, where each reads less."""
_FEW = 8
_TOTAL = 1 << 19
"""Bytes of the larger slots of all ranks: each rank reads all of them."""
_PAGE = 4096
_KNOWN_LIMIT = 4096


def _large(world_size: int) -> int:
    return max(SMALL, min(LARGE, _TOTAL // world_size // _PAGE * _PAGE))


def bytes_needed(world_size: int) -> int:
    """What the slots of `world_size` ranks take."""
    return world_size * (DEPTH * SMALL + _FEW * _large(world_size))


class Slots:
    """The slots of a transport.

    memory: `bytes_needed` of them
    limit: bytes of a rank that fit a slot
    """

    def __init__(self, memory: np.ndarray, world_size: int) -> None:
        small = world_size * DEPTH * SMALL
        self.limit = _large(world_size)
        self._small = memory[:small].reshape(DEPTH, world_size, SMALL)
        self._large = memory[small:].reshape(_FEW, world_size, self.limit)
        self._known: dict[tuple[int, int, np.dtype], list[np.ndarray]] = {}

    def depth(self, extent: int) -> int:
        """After how many collectives a slot for `extent` bytes is used again."""
        return DEPTH if extent <= SMALL else _FEW

    def place(self, extent: int) -> tuple[int, int, int]:
        """The ring of slots for `extent` bytes: its address, the bytes of a slot, and the entries."""
        ring = self._small if extent <= SMALL else self._large
        return address_of(ring), ring.shape[2], ring.shape[0]

    def for_call(self, number: int, call: Call) -> list[np.ndarray]:
        """The slots of all ranks for collective `number`, as arrays; none if nobody contributes anything."""
        dtype = call.array.dtype
        size = call.extent // dtype.itemsize
        if not size:
            return []
        ring = self._small if call.extent <= SMALL else self._large
        entry = number % ring.shape[0]
        key = (entry, size, dtype)
        slots = self._known.get(key)
        if slots is None:
            if len(self._known) >= _KNOWN_LIMIT:
                self._known.clear()
            slots = self._known[key] = [slot[: size * dtype.itemsize].view(dtype) for slot in ring[entry]]
        return slots
