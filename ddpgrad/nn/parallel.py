"""Where PyTorch users look for `DistributedDataParallel`, which lives in `distributed`, and for `DataParallel`."""

from __future__ import annotations

from ..distributed.data_parallel import DistributedDataParallel
from .data_parallel import DataParallel

__all__ = ["DataParallel", "DistributedDataParallel"]
