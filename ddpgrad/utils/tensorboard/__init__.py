"""`torch.utils.tensorboard`: a SummaryWriter of files that TensorBoard reads. It needs no TensorBoard itself."""

from __future__ import annotations

from .writer import SummaryWriter

__all__ = ["SummaryWriter"]
