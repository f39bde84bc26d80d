"""GPUs, as `torch.cuda`: which there are, which one this rank uses, its memory, streams and random numbers.

An op runs on this rank's current GPU, where its tensors must be: `set_device` chooses it, and
`init_process_group` deals the GPUs of a host out to its ranks. CuPy is loaded by the first call
here that needs a GPU, or by the first tensor on one.
"""

from __future__ import annotations

from .. import absent
from ..errors import OutOfMemoryError
from ..missing import missing
from . import memory, nvtx, random, streams
from .devices import (
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
    why_not,
)
from .memory import (
    empty_cache,
    ipc_collect,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream


def __getattr__(name: str) -> object:
    """`_initialized`, which libraries read where `is_initialized()` is meant; else the nearest names."""
    if name == "_initialized":
        return is_initialized()
    raise missing(globals(), name)


globals().update(
    absent.stand_ins(
        "cuda",
        absent.Part(
            "steps are not recorded as CUDA graphs",
            "CUDAGraph graph graph_pool_handle make_graphed_callables",
        ),
    )
)

__all__ = [
    "Event", "OutOfMemoryError", "Stream", "StreamContext", "can_device_access_peer", "current_device", "current_stream", "default_stream",
    "device", "device_count", "device_of", "empty_cache", "get_arch_list", "get_device_capability", "get_device_name",
    "get_device_properties", "get_rng_state", "get_rng_state_all", "init", "initial_seed", "ipc_collect", "is_available",
    "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory", "memory_allocated", "memory_cached",
    "memory_reserved", "memory_stats", "memory_summary", "nvtx", "random", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "seed", "seed_all",
    "set_device", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream", "stream",
    "streams", "synchronize", "why_not",
]  # fmt: skip
