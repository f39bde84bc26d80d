"""GPUs, as `torch.cuda`: which there are, which one this rank uses, its memory, streams and random numbers."""

from . import amp as amp, memory as memory, nvtx as nvtx, profiler as profiler, random as random, streams as streams
from ..core.errors import OutOfMemoryError as OutOfMemoryError
from ..utils.graphed_step import captured_step as captured_step
from ..utils.graphed import make_graphed_callables as make_graphed_callables
from .devices import (
    can_device_access_peer as can_device_access_peer, current_device as current_device, device as device,
    device_count as device_count, device_of as device_of, get_arch_list as get_arch_list,
    get_device_capability as get_device_capability, get_device_name as get_device_name,
    get_device_properties as get_device_properties, init as init, is_available as is_available,
    is_bf16_supported as is_bf16_supported, is_initialized as is_initialized, _lazy_call as _lazy_call, set_device as set_device,
    synchronize as synchronize, why_not as why_not,
)
from .graphs import (
    CUDAGraph as CUDAGraph, graph as graph, graph_pool_handle as graph_pool_handle,
    is_current_stream_capturing as is_current_stream_capturing,
)
from .memory import (
    empty_cache as empty_cache, ipc_collect as ipc_collect, max_memory_allocated as max_memory_allocated,
    max_memory_cached as max_memory_cached, max_memory_reserved as max_memory_reserved,
    mem_get_info as mem_get_info, memory_allocated as memory_allocated, memory_cached as memory_cached,
    memory_reserved as memory_reserved, memory_stats as memory_stats, memory_summary as memory_summary,
    reset_accumulated_memory_stats as reset_accumulated_memory_stats,
    reset_max_memory_allocated as reset_max_memory_allocated,
    reset_max_memory_cached as reset_max_memory_cached, reset_peak_memory_stats as reset_peak_memory_stats,
    set_per_process_memory_fraction as set_per_process_memory_fraction,
)
from .random import (
    get_rng_state as get_rng_state, get_rng_state_all as get_rng_state_all, initial_seed as initial_seed,
    manual_seed as manual_seed, manual_seed_all as manual_seed_all, seed as seed, seed_all as seed_all,
    set_rng_state as set_rng_state, set_rng_state_all as set_rng_state_all,
)
from .streams import (
    current_stream as current_stream, default_stream as default_stream, Event as Event,
    set_stream as set_stream, Stream as Stream, stream as stream, StreamContext as StreamContext,
)
