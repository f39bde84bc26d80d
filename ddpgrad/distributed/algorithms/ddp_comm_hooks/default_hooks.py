"""Hooks that average a bucket as it is, or in 16 bits.

Source of the names: torch.distributed.algorithms.ddp_comm_hooks.default_hooks. A state of None
means the default process group. The 16-bit hooks round each rank's gradients once; their
average is taken in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....backend.dtype import DType, bfloat16, float16
from ....futures import Future
from ...ddp.comm_hooks import GradBucket, average
from ...process_group import ProcessGroup

Hook = Callable[[Any, GradBucket], Future[Any]]


def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Any]:
    """Average the bucket, as without a hook."""
    return average(process_group, bucket, bucket.buffer())


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Any]:
    """Average the bucket in float16: half the bytes."""
    return average(process_group, bucket, bucket.buffer().to(float16))


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Any]:
    """Average the bucket in bfloat16: half the bytes, and float32's range."""
    return average(process_group, bucket, bucket.buffer().to(bfloat16))


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """`hook`, given buckets in float16."""
    return _compressed(hook, float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """`hook`, given buckets in bfloat16."""
    return _compressed(hook, bfloat16)


def _compressed(hook: Hook, to: DType) -> Hook:
    def compressed(state: Any, bucket: GradBucket) -> Future[Any]:
        bucket.set_buffer(bucket.buffer().to(to))
        return hook(state, bucket)

    return compressed
