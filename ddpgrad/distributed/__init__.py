"""Training on several ranks: process groups, collectives, data parallelism.

A *rank* is a logical worker; a *process* is an operating-system process that hosts one or
more ranks; a *host* is a machine. A *transport* carries collectives between processes.
"""

from __future__ import annotations

from ..errors import DistributedError as DistBackendError
from ..errors import DistributedError as DistError
from ..errors import TransportError as DistNetworkError
from . import algorithms, nn, optim
from .backends import (
    Backend,
    default_pg_timeout,
    get_default_backend_for_device,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from .collectives import (
    ReduceOp,
    Work,
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    make_premul_sum,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .comm_hooks import GradBucket
from .device_mesh import DeviceMesh, init_device_mesh
from .host import run_module, run_ranks, run_script, simulate
from .messages import (
    P2POp,
    all_gather_object,
    batch_isend_irecv,
    broadcast_object_list,
    gather_object,
    irecv,
    isend,
    recv,
    recv_object_list,
    scatter_object_list,
    send,
    send_object_list,
)
from .process_group import (
    GroupMember,
    ProcessGroup,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_local_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_initialized,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)
from .store import DistStoreError, FileStore, HashStore, PrefixStore, Store, TCPStore

reduce_op = ReduceOp  # its former name

__all__ = [
    "Backend", "DeviceMesh", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore",
    "HashStore", "PrefixStore", "Store", "TCPStore", "default_pg_timeout", "get_backend_config",
    "get_default_backend_for_device", "get_pg_count", "init_device_mesh", "is_backend_available", "is_ucc_available",
    "is_xccl_available", "recv_object_list", "reduce_op", "send_object_list", "all_gather_coalesced",
    "GradBucket", "GroupMember", "P2POp", "ProcessGroup", "ReduceOp", "Work", "algorithms", "all_gather", "all_gather_into_tensor",
    "all_gather_object", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group", "gather", "gather_object",
    "get_backend", "get_global_rank", "get_group_rank", "get_local_rank", "get_node_local_rank",
    "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv", "is_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "isend", "make_premul_sum", "monitored_barrier", "nn", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
    "optim", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "run_module", "run_ranks", "run_script", "scatter",
    "scatter_object_list", "send", "simulate", "split_group",
]  # fmt: skip
