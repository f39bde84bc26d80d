"""Modules whose parameters are divided among the ranks of a mesh, under PyTorch's names."""

from .loss import loss_parallel as loss_parallel
from .plan import parallelize_module as parallelize_module
from .prepare import (
    PrepareModuleInput as PrepareModuleInput, PrepareModuleInputOutput as PrepareModuleInputOutput,
    PrepareModuleOutput as PrepareModuleOutput,
)
from .styles import (
    ColwiseParallel as ColwiseParallel, ParallelStyle as ParallelStyle, RowwiseParallel as RowwiseParallel,
    SequenceParallel as SequenceParallel,
)
