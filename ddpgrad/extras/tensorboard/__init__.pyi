"""`torch.utils.tensorboard`: a SummaryWriter of files that TensorBoard reads. It needs no TensorBoard itself."""

from .writer import SummaryWriter as SummaryWriter
