"""Are the replicas still alike? Every so many steps the ranks compare checksums of all parameters.

Replicas begin alike and get the same updates. They drift apart when a rank changes parameters
by itself: a seed that differs, an update that depends on the rank, a gradient that was changed
after it was averaged, a faulty machine. Losses look well then, and the model is wrong.
"""

from __future__ import annotations

import hashlib
import logging
import time
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from .._tensor import Tensor
from ..errors import MismatchError
from .communicator import Communicator
from .tensor_work import on_host

_log = logging.getLogger("ddpgrad.distributed")


class ReplicaCheck:
    """Compares the parameters of all ranks after every `every` steps; 0: never.

    checks, seconds: how often it did so, and what that cost in all.
    """

    def __init__(self, parameters: Sequence[tuple[str, Tensor]], c: Communicator, every: int) -> None:
        if every < 0:
            raise ValueError(
                f"the steps between two checks of the replicas must not be negative, got {every}"
            )
        self._parameters, self._communicator, self.every = list(parameters), c, every
        self.checks, self.seconds = 0, 0.0
        self._equal_at = 0

    def after(self, step: int) -> None:
        """Compare, if it is time. Raises MismatchError, which names rank, parameter and steps."""
        if not self.every or step % self.every or step == self._equal_at or self._communicator.size == 1:
            return
        began = time.perf_counter()
        self.compare(step)
        cost = time.perf_counter() - began
        self.checks += 1
        self.seconds += cost
        self._equal_at = step
        _log.info("replicas are equal after step %d; the check took %.2f ms", step, cost * 1e3)

    def compare(self, step: int) -> None:
        """Compare now; collective. Raises as `after` does."""
        c = self._communicator
        sums = np.array([_checksum(p) for _, p in self._parameters], np.uint32)
        digest = np.frombuffer(hashlib.blake2b(sums.tobytes(), digest_size=16).digest(), np.uint64)
        digests = [row.tobytes() for row in c.all_gather(digest, "check of the replicas")]
        if len(set(digests)) == 1:
            return
        rows = c.all_gather(sums, "check of the replicas, by parameter")
        # What most ranks have is taken for right; with as many on both sides, what rank 0 has.
        counts = Counter(digests)
        usual = max(digests, key=lambda d: (counts[d], d == digests[0]))
        rank = next(r for r, d in enumerate(digests) if d != usual)
        like = digests.index(usual)
        different = np.flatnonzero(rows[rank] != rows[like])
        name = self._parameters[different[0]][0]
        others = [r for r, d in enumerate(digests) if d != usual and r != rank]
        raise MismatchError(
            f"the replicas have drifted apart: after step {step}, parameter '{name}' of rank {rank} is not that of "
            f"rank {like}; {len(different)} of {len(rows[rank])} parameters differ there"
            + (f", and ranks {others} differ too" if others else "")
            + f". They were equal after step {self._equal_at}. Look for what a rank does by itself: a seed, an "
            "update or clipping that depends on the rank, gradients changed after backward. "
            "DDPGRAD_CHECK_REPLICAS=1 checks after every step and so finds the first."
        )


def _checksum(parameter: Tensor) -> int:
    array = np.ascontiguousarray(on_host(parameter))
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)
