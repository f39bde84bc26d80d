"""Hooks that communicate gradients as bytes: each rank sends its own, with a scale and a zero point, to all others.

Source of the names: torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks. A state of None means the default process
group. A rank receives the buckets of all: on more than four ranks that is more than an all-reduce in float32. All ranks add them
up in one order and have the same bits.
"""

from __future__ import annotations

from typing import Any

from ....backend.dtype import float32, uint8
from ....futures import Future
from ....nn.functional import pad
from ....ops.creation.factories import zeros
from ....ops.shape.stacking import stack
from ... import collectives
from ...ddp.comm_hooks import GradBucket
from ...process_group import ProcessGroup, resolve

_LEVELS = 255
_EPS = 2.0**-23  # the least scale: float32's


def quantization_pertensor_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Any]:
    """Average the bucket, of which each element travels as one of 256 levels between the bucket's least and largest."""
    return _average(process_group, bucket, bucket.buffer().view(1, -1))


def quantization_perchannel_hook(
    process_group: ProcessGroup | None, bucket: GradBucket, bucket_size: int = 512
) -> Future[Any]:
    """As `quantization_pertensor_hook`, with levels of their own for each `bucket_size` elements."""
    flat = bucket.buffer()
    return _average(process_group, bucket, pad(flat, (0, -flat.numel() % bucket_size)).view(-1, bucket_size))


def _average(process_group: ProcessGroup | None, bucket: GradBucket, rows: Any) -> Future[Any]:
    """A future of the average of `rows` (n, m), each of which has levels of its own, in the bucket's shape."""
    size, count = resolve(process_group).size(), bucket.buffer().numel()
    least, largest = (getattr(rows.to(float32), f)(1, keepdim=True) for f in ("amin", "amax"))
    least, largest = least.clamp(max=0), largest.clamp(min=0)
    scale = ((largest - least) / _LEVELS).clamp(min=_EPS)
    zero = (-(least / scale).round()).clamp(0, _LEVELS)
    levels = ((rows / scale).round() + zero).clamp(0, _LEVELS).to(uint8)
    about = stack((scale, zero))
    all_about, all_levels = ([t.new_empty(t.shape) for _ in range(size)] for t in (about, levels))
    told = collectives.all_gather(all_about, about, process_group, async_op=True)
    sent = collectives.all_gather(all_levels, levels, process_group, async_op=True)
    assert told is not None and sent is not None

    def averaged(_: Any) -> Any:
        told.wait()
        total = zeros(rows.shape, dtype=float32, device=rows.device)
        for (scale, zero), levels in zip(all_about, all_levels, strict=True):
            total += scale * (levels.to(float32) - zero)
        return total.view(-1)[:count] / size

    return sent.get_future().then(averaged)
