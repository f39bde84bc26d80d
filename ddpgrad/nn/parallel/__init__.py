"""`nn.parallel`: PyTorch's place for `DistributedDataParallel` and `DataParallel`."""

from ...core.face import serve

serve(__name__)
