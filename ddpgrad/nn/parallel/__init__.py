"""Where PyTorch users look for `DistributedDataParallel`, which lives in `distributed`, and for `DataParallel`."""

from ...core.face import serve

serve(__name__)
