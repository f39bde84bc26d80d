"""Options of `FullyShardedDataParallel` by PyTorch's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ...compat.absent import LocalOptimStateDictConfig, LocalStateDictConfig  # noqa: F401 - libraries import them here
from ...nn.modules.batchnorm import _BatchNorm


class ShardingStrategy(Enum):
    """FULL_SHARD: whole parameters are dropped after forward; SHARD_GRAD_OP: they stay until backward has used them."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the next group is gathered in backward; here one is under way while another is used, whatever is said."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """Dtypes in which a group is gathered and computed with (param_dtype), averaged (reduce_dtype), and of its buffers.

    None: as they are. Arguments of forward are converted to `param_dtype` where cast_forward_inputs, or for the
    outermost module cast_root_forward_inputs, says so. Rows and the optimizer's state keep their dtype. Modules of the classes to
    ignore compute in float32 where a policy chooses parts.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: tuple[type, ...] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """Rows, gradients and the optimizer's state lie in host memory, and whole parameters on the GPU that computes."""

    offload_params: bool = False


class StateDictType(Enum):
    """Whole tensors, or each rank's rows."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """How an optimizer's state dict calls parameters."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


@dataclass
class StateDictConfig:
    """offload_to_cpu: tensors are copied to the CPU."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Whole tensors. rank0_only: other ranks get an empty dict."""

    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Each rank's rows, as DTensors."""


@dataclass
class OptimStateDictConfig:
    """offload_to_cpu: tensors are copied to the CPU."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Whole tensors. rank0_only: other ranks get an empty dict."""

    rank0_only: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Each rank's rows, as DTensors."""


@dataclass
class StateDictSettings:
    """What `FullyShardedDataParallel.set_state_dict_type` has set."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
