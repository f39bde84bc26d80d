"""Training on several ranks: process groups, collectives, data parallelism.

A *rank* is a logical worker; a *process* is an operating-system process that hosts one or
more ranks; a *host* is a machine. A *transport* carries collectives between processes.
"""

from __future__ import annotations

from .host import run_module, run_ranks, run_script, simulate
from .process_group import (
    ProcessGroup,
    ReduceOp,
    Work,
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    barrier,
    broadcast,
    broadcast_object_list,
    destroy_process_group,
    gather,
    get_backend,
    get_local_rank,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
    reduce,
    reduce_scatter_tensor,
    scatter,
)

__all__ = [
    "ProcessGroup", "ReduceOp", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "barrier", "broadcast", "broadcast_object_list", "destroy_process_group", "gather", "get_backend",
    "get_local_rank", "get_rank", "get_world_size", "init_process_group", "is_available", "is_initialized", "reduce",
    "reduce_scatter_tensor", "run_module", "run_ranks", "run_script", "scatter", "simulate",
]  # fmt: skip
