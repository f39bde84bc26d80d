"""Training on several ranks: process groups, collectives, data parallelism."""

from . import algorithms as algorithms, fsdp as fsdp, nn as nn, rendezvous as rendezvous, tensor as tensor
from ..core.errors import DistributedError as _DistributedError, TransportError as _TransportError
from .agreement import agree as agree, on_rank_zero as on_rank_zero, rank_zero_first as rank_zero_first
from .backends import (
    Backend as Backend, default_pg_timeout as default_pg_timeout,
    get_default_backend_for_device as get_default_backend_for_device,
    is_backend_available as is_backend_available, is_gloo_available as is_gloo_available,
    is_mpi_available as is_mpi_available, is_nccl_available as is_nccl_available,
    is_ucc_available as is_ucc_available, is_xccl_available as is_xccl_available,
)
from .collectives import (
    all_gather as all_gather, all_gather_coalesced as all_gather_coalesced,
    all_gather_into_tensor as all_gather_into_tensor, all_reduce as all_reduce,
    all_reduce_coalesced as all_reduce_coalesced, all_to_all as all_to_all,
    all_to_all_single as all_to_all_single, barrier as barrier, broadcast as broadcast, gather as gather,
    reduce as reduce,
    reduce_scatter as reduce_scatter, reduce_scatter_tensor as reduce_scatter_tensor,
    scatter as scatter, Work as Work,
)
from .ddp.comm_hooks import GradBucket as GradBucket
from .debug_level import (
    DebugLevel as DebugLevel, get_debug_level as get_debug_level, set_debug_level as set_debug_level,
    set_debug_level_from_env as set_debug_level_from_env,
)
from .device_mesh import DeviceMesh as DeviceMesh, init_device_mesh as init_device_mesh
from .group_methods import (
    AllreduceCoalescedOptions as AllreduceCoalescedOptions, AllreduceOptions as AllreduceOptions,
    AllToAllOptions as AllToAllOptions, BarrierOptions as BarrierOptions, BroadcastOptions as BroadcastOptions,
    GatherOptions as GatherOptions, ReduceOptions as ReduceOptions, ReduceScatterOptions as ReduceScatterOptions,
    ScatterOptions as ScatterOptions,
)
from .mean import Mean as Mean
from .messages import (
    all_gather_object as all_gather_object, batch_isend_irecv as batch_isend_irecv,
    broadcast_object_list as broadcast_object_list, gather_object as gather_object, irecv as irecv,
    isend as isend, P2POp as P2POp, recv as recv, recv_object_list as recv_object_list,
    scatter_object_list as scatter_object_list, send as send, send_object_list as send_object_list,
)
from .monitored_barrier import monitored_barrier as monitored_barrier
from .objects import allow_pickle as allow_pickle
from .older_names import (
    _broadcast_coalesced as _broadcast_coalesced, _coalescing_manager as _coalescing_manager,
)
from .process_group import (
    destroy_process_group as destroy_process_group, get_backend as get_backend,
    get_backend_config as get_backend_config, get_global_rank as get_global_rank,
    get_group_rank as get_group_rank, get_local_rank as get_local_rank,
    get_node_local_rank as get_node_local_rank, get_pg_count as get_pg_count,
    get_process_group_ranks as get_process_group_ranks, get_rank as get_rank,
    get_world_size as get_world_size, group as group, is_outside as _rank_not_in_group, GroupMember as GroupMember,
    init_process_group as init_process_group, is_available as is_available,
    is_initialized as is_initialized, is_torchelastic_launched as is_torchelastic_launched,
    new_group as new_group, new_subgroups as new_subgroups,
    new_subgroups_by_enumeration as new_subgroups_by_enumeration, ProcessGroup as ProcessGroup,
    split_group as split_group,
)
from .ranks.host import (
    run_module as run_module, run_ranks as run_ranks, run_script as run_script, simulate as simulate,
)
from .reduce_op import make_premul_sum as make_premul_sum, ReduceOp as ReduceOp
from .rendezvous.handlers import register_rendezvous_handler as register_rendezvous_handler
from .store import (
    DistStoreError as DistStoreError, FileStore as FileStore, HashStore as HashStore,
    PrefixStore as PrefixStore, QueueEmptyError as QueueEmptyError, Store as Store,
)
from .tcp_store import TCPStore as TCPStore
from .variable import all_gather_variable as all_gather_variable

# Other names of what is above.
DistBackendError = _DistributedError
DistError = _DistributedError
DistNetworkError = _TransportError
all_gather_single = all_gather_into_tensor
_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor
_make_nccl_premul_sum = make_premul_sum
reduce_op = ReduceOp
reduce_scatter_single = reduce_scatter_tensor
