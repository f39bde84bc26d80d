"""Tensors that lie on several ranks, under PyTorch's names."""

from .dtensor import DTensor as DTensor
from .factories import (
    distribute_module as distribute_module, distribute_tensor as distribute_tensor, empty as empty, full as full, ones as ones, rand as rand, randn as randn, zeros as zeros,
)
from .layout import Partial as Partial, Placement as Placement, Replicate as Replicate, Shard as Shard, _StridedShard as _StridedShard
from ..device_mesh import DeviceMesh as DeviceMesh, init_device_mesh as init_device_mesh
