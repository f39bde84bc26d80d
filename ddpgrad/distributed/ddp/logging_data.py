"""What a model in `DistributedDataParallel` can say of itself, by the names that PyTorch's logging data have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .sync_batchnorm import SyncBatchNorm

if TYPE_CHECKING:
    from .data_parallel import DistributedDataParallel


def logging_data(model: DistributedDataParallel) -> dict[str, Any]:
    """Sizes in bytes, parameters by index, 0 and 1 for no and yes, lists as text, as in PyTorch.

    Without times: `ddprun --trace` and `torch.profiler` tell those of every step. error: the last that was found.
    """
    reducer, group = model.reducer, model.process_group
    parameters = reducer.parameters
    layouts = [bucket.layout.indices for bucket in reducer.buckets]
    sizes = ", ".join(str(sum(parameters[i].nbytes for i in indices)) for indices in layouts)
    data = {
        "world_size": group.size(),
        "rank": group.rank(),
        "backend_name": group.backend,
        "module_name": type(model.module).__name__,
        "device_ids": ", ".join(map(str, model.device_ids or ())),
        "output_device": -1 if model.output_device is None else model.output_device,
        "broadcast_buffers": int(model.forward_sync_buffers),
        "find_unused_parameters": int(model.find_unused_parameters),
        "gradient_as_bucket_view": int(model.gradient_as_bucket_view),
        "static_graph": int(model.static_graph),
        "has_sync_bn": int(any(isinstance(m, SyncBatchNorm) for m in model.module.modules())),
        "comm_hook": getattr(reducer.hook, "__qualname__", "") if reducer.hook is not None else "",
        "dtypes": ", ".join(sorted({p.dtype.name for p in parameters})),
        "bucket_cap_bytes": reducer.cap_bytes,
        "num_parameter_tensors": len(parameters),
        "total_parameter_size_bytes": sum(p.nbytes for p in parameters),
        "bucket_sizes": sizes,
        "num_buckets_reduced": len(layouts),
        "has_rebuilt_buckets": int(reducer.rebuilt),
        "iteration": reducer.steps,
        "has_error": int(bool(reducer.error)),
        "error": reducer.error,
    }
    if reducer.rebuilt:
        data["rebuilt_bucket_sizes"] = sizes
        data["rebuilt_per_bucket_param_indices"] = ", ".join(" ".join(map(str, i)) for i in layouts)
    return data
