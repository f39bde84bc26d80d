"""Where PyTorch users look for `DistributedDataParallel`, which lives in `distributed`, and for `DataParallel`."""

from __future__ import annotations

from ..data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
