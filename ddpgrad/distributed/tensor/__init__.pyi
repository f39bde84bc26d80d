"""Tensors that lie on several ranks, under PyTorch's names."""

from .dtensor import distribute_tensor as distribute_tensor, DTensor as DTensor
from .layout import Placement as Placement, Replicate as Replicate, Shard as Shard
from ...compat.absent import Partial as Partial
