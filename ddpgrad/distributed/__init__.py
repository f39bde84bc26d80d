"""Training on several ranks: process groups, collectives, data parallelism.

A *rank* is a logical worker; a *process* is an operating-system process that hosts one or
more ranks; a *host* is a machine. A *transport* carries collectives between processes.
"""

from __future__ import annotations

from . import algorithms, nn
from .collectives import (
    ReduceOp,
    Work,
    all_gather,
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
    scatter_object_list,
    send,
)
from .process_group import (
    GroupMember,
    ProcessGroup,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_local_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)

__all__ = [
    "GradBucket", "GroupMember", "P2POp", "ProcessGroup", "ReduceOp", "Work", "algorithms", "all_gather", "all_gather_into_tensor",
    "all_gather_object", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group", "gather", "gather_object",
    "get_backend", "get_global_rank", "get_group_rank", "get_local_rank", "get_node_local_rank",
    "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv", "is_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "isend", "make_premul_sum", "monitored_barrier", "nn", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
    "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "run_module", "run_ranks", "run_script", "scatter",
    "scatter_object_list", "send", "simulate", "split_group",
]  # fmt: skip
