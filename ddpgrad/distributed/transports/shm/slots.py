"""Slots in the control page, through which small collectives travel: one for each rank and collective under way."""

from __future__ import annotations

import numpy as np

from ..calls import Call
from .control import DEPTH
from .windows import address_of

_KNOWN_LIMIT = 4096


class Slots:
    """The slots of a transport. memory: by entry of the ring and rank, the bytes of a slot."""

    def __init__(self, memory: np.ndarray) -> None:
        self._memory = memory
        self.nbytes = memory.shape[2]
        self.address = address_of(memory)
        self._known: dict[tuple[int, int, np.dtype], list[np.ndarray]] = {}

    def of(self, number: int, size: int, dtype: np.dtype) -> list[np.ndarray]:
        """The slots of all ranks for collective `number`, as arrays of `size` elements."""
        key = (number % DEPTH, size, dtype)
        slots = self._known.get(key)
        if slots is None:
            if len(self._known) >= _KNOWN_LIMIT:
                self._known.clear()
            memory = self._memory[number % DEPTH]
            slots = self._known[key] = [slot[: size * dtype.itemsize].view(dtype) for slot in memory]
        return slots

    def for_call(self, number: int, call: Call) -> list[np.ndarray]:
        """The slots of all ranks for collective `number`; none if nobody contributes anything."""
        size = call.extent // call.array.itemsize
        return self.of(number, size, call.array.dtype) if size else []
