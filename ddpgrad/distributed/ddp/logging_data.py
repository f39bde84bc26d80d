"""What a model in `DistributedDataParallel` can say of itself, by the names that PyTorch's logging data have."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...core import environment
from ...core.spans import now
from .sync_batchnorm import SyncBatchNorm

if TYPE_CHECKING:
    from .data_parallel import DistributedDataParallel
    from .reducer import Reducer

_LENGTHS = (
    "forward_compute_time",
    "backward_compute_time",
    "backward_comm_time",
    "backward_compute_comm_overlap_time",
)
_MOMENTS = (
    "forward_compute_time_start",
    "backward_compute_time_start",
    "backward_compute_time_end",
    "backward_comm_time_start",
    "backward_comm_time_end",
)


def logging_data(model: DistributedDataParallel) -> dict[str, Any]:
    """Sizes in bytes, parameters by index, 0 and 1 for no and yes, lists as text, as in PyTorch.

    Times are nanoseconds, of the last step and averages of up to 20, once there were some. error: the last that was found.
    """
    reducer, group, place = model.reducer, model.process_group, environment.rendezvous()
    parameters = reducer.parameters
    layouts = [bucket.layout.indices for bucket in reducer.buckets]
    sizes = ", ".join(str(sum(parameters[i].nbytes for i in indices)) for indices in layouts)
    data = {
        "world_size": group.size(),
        "rank": group.rank(),
        "backend_name": group.backend,
        "module_name": type(model.module).__name__,
        "device_ids": ", ".join(map(str, model.device_ids or ())),
        "is_multi_device_module": 0,
        "master_addr": place.get("MASTER_ADDR", "N/A"),
        "master_port": place.get("MASTER_PORT", "N/A"),
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
        "unused_parameter_size": sum(parameters[i].nbytes for i in reducer.unused),
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
        data["prev_iteration_grad_ready_order_indices"] = ", ".join(str(i) for part in layouts for i in part)
    data |= _times(reducer)
    return data


def _times(reducer: Reducer) -> dict[str, int]:
    steps = []
    for forward, backward, computed, rows in reducer.timed:
        began, ended = min(row[1] for row in rows), max(row[2] for row in rows)
        lengths = (backward - forward, computed - backward, ended - began, max(0.0, computed - began))
        steps.append((lengths, (forward, backward, computed, began, ended)))
    if not steps:
        return {}
    lengths, moments = steps[-1]
    averages = [sum(column) / len(steps) for column in zip(*(each for each, _ in steps), strict=True)]
    epoch = time.time() - now()  # of the clock that steps were measured by
    values = zip(_LENGTHS, lengths, strict=True), zip((f"avg_{n}" for n in _LENGTHS), averages, strict=True)
    told = {name: round(value * 1e9) for part in values for name, value in part}
    return told | {name: round((t + epoch) * 1e9) for name, t in zip(_MOMENTS, moments, strict=True)}
