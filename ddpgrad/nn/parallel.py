"""Where PyTorch users look for `DistributedDataParallel`; it lives in `distributed`."""

from __future__ import annotations

from ..distributed.data_parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
