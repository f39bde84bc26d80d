"""The sum of the ranks' sparse arrays: each rank gets the stored elements of all, and adds them up in order of ranks."""

from __future__ import annotations

import math

import numpy as np

from ...backend.device import CPU
from ...backend.registry import backend_for, to_device
from ...backend.sparse.coo import COO, coo
from .communicator import Communicator


class SparseSum:
    """A sum under way; `wait` before `result` is asked for. All ranks get the same bits.

    array: what this rank adds; None where it has nothing, and where all have, the result is None. Indices and values
    travel when the ranks have told how many they have: in `wait`, which all ranks call in one order.
    """

    def __init__(self, c: Communicator, array: COO | None, empty: COO, label: str) -> None:
        self._communicator = c
        local = (empty if array is None else array).coalesce()
        self._device = backend_for(local.values).device_of(local.values)
        # NCCL reads the memory of the GPU itself; other transports read that of the host.
        self._local: COO = local if c.transport == "nccl" else to_device(local, CPU)
        self._label = f"{label} (sparse, {list(local.shape)})"
        count = np.zeros_like(self._local.indices, shape=(1,)) + (-1 if array is None else local.nnz)
        self._counts, self._work = c.start_all_gather(count, self._label)
        self._result: COO | None = None
        self._done = False

    def poll(self) -> bool:
        """Advance without waiting; True when `wait` was called, without which no rank learns the sum."""
        self._work.poll()
        return self._done

    def wait(self) -> None:
        """Return when the sum is there."""
        if self._done:
            return
        self._work.wait()
        self._done = True
        counts = [int(n) for n in self._counts.reshape(-1).tolist()]
        most, local, c = max(counts), self._local, self._communicator
        if most < 0:
            return
        dense = local.values.shape[1:]
        indices = np.zeros_like(local.indices, shape=(local.sparse_dim, most))
        values = np.zeros_like(local.values, shape=(most, *dense))
        indices[:, : local.nnz], values[: local.nnz] = local.indices, local.values
        if most * max(1, math.prod(dense)):
            all_indices = c.all_gather(indices, f"{self._label} indices")
            all_values = c.all_gather(values, f"{self._label} values")
        else:
            all_indices, all_values = [indices] * c.size, [values] * c.size
        parts = [(i[:, :n], v[:n]) for i, v, n in zip(all_indices, all_values, counts, strict=True) if n > 0]
        joined = local.like(local.indices[:, :0], local.values[:0], local.shape)
        if parts:
            joined = coo(
                np.concatenate([i for i, _ in parts], axis=1),
                np.concatenate([v for _, v in parts]),
                local.shape,
            )
        self._result = to_device(joined.coalesce(), self._device)

    def result(self) -> COO | None:
        """The sum, coalesced; None where no rank had anything to add."""
        self.wait()
        return self._result
