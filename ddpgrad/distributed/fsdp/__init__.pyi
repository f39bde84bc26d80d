"""Data parallelism with parameters, gradients and optimizer state divided among the ranks."""

from .api import (
    BackwardPrefetch as BackwardPrefetch, CPUOffload as CPUOffload, FullOptimStateDictConfig as FullOptimStateDictConfig,
    FullStateDictConfig as FullStateDictConfig, MixedPrecision as MixedPrecision, OptimStateDictConfig as OptimStateDictConfig,
    OptimStateKeyType as OptimStateKeyType, ShardedOptimStateDictConfig as ShardedOptimStateDictConfig,
    ShardedStateDictConfig as ShardedStateDictConfig, ShardingStrategy as ShardingStrategy,
    StateDictConfig as StateDictConfig, StateDictSettings as StateDictSettings, StateDictType as StateDictType,
)
from .fully_shard import fully_shard as fully_shard
from .fully_sharded_data_parallel import FullyShardedDataParallel as FullyShardedDataParallel
from .policies import (
    CPUOffloadPolicy as CPUOffloadPolicy, MixedPrecisionPolicy as MixedPrecisionPolicy, OffloadPolicy as OffloadPolicy,
)
from .sharded_module import (
    FSDPModule as FSDPModule, register_fsdp_forward_method as register_fsdp_forward_method, share_comm_ctx as share_comm_ctx,
    UnshardHandle as UnshardHandle,
)
from ...compat.absent import LocalStateDictConfig as LocalStateDictConfig
