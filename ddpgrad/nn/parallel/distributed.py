"""`torch.nn.parallel.distributed`: the page of `DistributedDataParallel`, which lives in `distributed`."""

from __future__ import annotations

from ...distributed.data_parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
