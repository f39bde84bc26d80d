"""`torch.utils.tensorboard`: a SummaryWriter of files that TensorBoard reads. It needs no TensorBoard itself."""

from ...core.face import serve

serve(__name__)
