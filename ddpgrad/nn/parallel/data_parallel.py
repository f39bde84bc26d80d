"""`torch.nn.parallel.data_parallel`: the page of `DataParallel`."""

from __future__ import annotations

from ..data_parallel import DataParallel, data_parallel

__all__ = ["DataParallel", "data_parallel"]
