"""Memory in which whole gradients of a group lie while they are dealt to the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..communicator.communicator import Communicator
from ..tensor.exchange import fresh, takes


class Room:
    """Room for `size` bytes, which all of `readers` read. like: an array on the device of the gradients.

    The first of `readers` makes it on all its ranks together. On a CPU it is memory that the transport reaches without a copy.
    On a GPU there is fresh memory for each reduction, which CuPy's pool has soon, and page-locked memory of the host besides,
    unless the transports read the GPU's.
    """

    def __init__(self, readers: Sequence[Communicator], size: int, like: Any) -> None:
        self._like, self._stage = fresh(like, 1, np.uint8), None
        self._memory: np.ndarray | None = None  # also of a stage, which unlocks it when it is dropped
        if isinstance(like, np.ndarray):
            self._memory = readers[0].allocate(size, np.uint8)
        elif not all(takes(c, like) for c in readers):
            from ...backend.cuda.staging import Stage, room_for

            self._memory = readers[0].allocate(room_for(size, np.uint8), np.uint8)
            self._stage = Stage(self._memory, size, like)

    def whole(self, length: int, dtype: np.dtype) -> Any:
        """An array of `length` elements to be filled."""
        if self._memory is None or self._stage is not None:
            return fresh(self._like, length, dtype)
        return self._memory[: length * dtype.itemsize].view(dtype)

    def sent(self, whole: Any) -> Any:
        """What a communicator reads for `whole`: itself, or a copy on the host, once the GPU has filled it."""
        if self._stage is None:
            return whole
        self._stage.to_host(whole.view(np.uint8))
        self._stage.synchronize()
        return self._stage.host[: whole.nbytes].view(whole.dtype)
