"""Data parallelism with parameters, gradients and optimizer state divided among the ranks."""

from .fully_shard import (
    FSDPModule as FSDPModule, fully_shard as fully_shard,
    register_fsdp_forward_method as register_fsdp_forward_method, UnshardHandle as UnshardHandle,
)
from .policies import (
    CPUOffloadPolicy as CPUOffloadPolicy, MixedPrecisionPolicy as MixedPrecisionPolicy, OffloadPolicy as OffloadPolicy,
)
from ...compat.absent import (
    BackwardPrefetch as BackwardPrefetch, CPUOffload as CPUOffload,
    FullOptimStateDictConfig as FullOptimStateDictConfig, FullStateDictConfig as FullStateDictConfig,
    FullyShardedDataParallel as FullyShardedDataParallel, LocalStateDictConfig as LocalStateDictConfig,
    MixedPrecision as MixedPrecision, OptimStateKeyType as OptimStateKeyType,
    ShardedOptimStateDictConfig as ShardedOptimStateDictConfig, ShardedStateDictConfig as ShardedStateDictConfig,
    ShardingStrategy as ShardingStrategy, StateDictType as StateDictType,
)
