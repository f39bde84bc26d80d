"""Where PyTorch users look for `DistributedDataParallel`, which lives in `distributed`, and for `DataParallel`."""

from .data_parallel import data_parallel as data_parallel, DataParallel as DataParallel
from ...distributed.ddp.data_parallel import DistributedDataParallel as DistributedDataParallel
