"""`torch.utils.tensorboard`: importing it says what to use instead, as PyTorch does without TensorBoard."""

from __future__ import annotations

raise ModuleNotFoundError(
    "torch.utils.tensorboard: ddpgrad writes no TensorBoard files. `from tensorboardX import SummaryWriter` takes numbers "
    "and NumPy arrays",
    name="torch.utils.tensorboard",
)
