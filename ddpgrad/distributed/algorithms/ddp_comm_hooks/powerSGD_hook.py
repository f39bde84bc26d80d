"""PowerSGD: gradients travel as the factors of a matrix of low rank.

Source: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", 2019, and the names and settings of torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.

A gradient M of n x m becomes P (n x r) and Q (m x r): one power iteration from the last Q gives P = M Q,
which is averaged and made orthogonal; then Q = Mᵀ P is averaged, and P Qᵀ is what all ranks take for the average of
M. What that leaves out of a rank's own gradients is added to its next ones.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backend.dtype import float32, float64
from ....core.tensor import Tensor
from ....futures import Future
from ....linalg import qr
from ....ops.creation.draws import randn
from ....ops.creation.factories import empty, zeros
from ....ops.shape.stacking import cat, stack
from ....random.generator import Generator
from ... import collectives
from ...ddp.comm_hooks import GradBucket
from ...process_group import ProcessGroup
from .default_hooks import allreduce_hook

_log = logging.getLogger(__name__)


class PowerSGDState:
    """What the hooks keep from step to step.

    matrix_approximation_rank           r above: more is closer to the average, and more to send
    start_powerSGD_iter                 steps before which whole gradients travel, as training begins
    min_compression_rate                gradients that would not shrink by this factor travel whole
    use_error_feedback, warm_start      add what was left out to the next gradients; begin with the last Q
    orthogonalization_epsilon           added to norms where columns may vanish; 0: by a QR decomposition
    random_seed                         of the first Q, which must be the same on all ranks
    compression_stats_logging_frequency after how many steps `logging` is told of `compression_stats`, as information
    batch_tensors_with_same_shape       multiply matrices of one shape in one call
    """

    def __init__(
        self,
        process_group: ProcessGroup | None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because buckets "
                f"are laid out anew after the first step; got {start_powerSGD_iter}"
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.rng = np.random.RandomState(random_seed)
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, Tensor] = {}
        self.iter = 0
        self.total_numel_before_compression = 0
        self.total_numel_after_compression = 0

    def compression_stats(self) -> tuple[float, int, int]:
        """(how many times fewer elements travelled, elements of gradients, elements that travelled) since compression began."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0), before, after

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step when its last bucket comes."""
        self.iter += bucket.is_last()


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    """Average each gradient of the bucket as factors, and those whole that would hardly shrink (biases)."""
    if _too_early(state):
        return _whole(state, bucket)
    flat = bucket.buffer()
    _add_error(state, bucket, flat)
    by_shape: dict[tuple[int, int], list[Tensor]] = {}  # the order in which PyTorch draws the first factors
    whole = []
    for gradient in bucket.gradients():
        matrix = gradient.view(gradient.shape[0] if gradient.dim() else 1, -1)
        n, m = matrix.shape
        factors = (n + m) * _rank(state, n, m)
        compress = factors * state.min_compression_rate < n * m
        state.total_numel_before_compression += n * m
        state.total_numel_after_compression += factors if compress else n * m
        if compress:
            by_shape.setdefault((n, m), []).append(matrix)
        else:
            whole.append(gradient)
    groups = list(by_shape.values())
    if not state.batch_tensors_with_same_shape:
        groups = [[matrix] for alike in groups for matrix in alike]
    return _compressed(state, bucket, flat, groups, whole)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    """Average the bucket as the factors of one square matrix: fewer calls, and further from the average."""
    if _too_early(state):
        return _whole(state, bucket)
    length = bucket.buffer().numel()
    side = math.ceil(math.sqrt(length))
    flat = zeros(side * side, dtype=bucket.buffer().dtype, device=bucket.buffer().device)
    flat[:length] = bucket.buffer()
    _add_error(state, bucket, flat)
    state.total_numel_before_compression += length
    state.total_numel_after_compression += 2 * side * _rank(state, side, side)
    done = _compressed(state, bucket, flat, [[flat.view(side, side)]], [])
    return done.then(lambda averaged: averaged.value()[:length])


def _too_early(state: PowerSGDState) -> bool:
    """True in the steps before compression begins."""
    if not isinstance(state, PowerSGDState):
        raise TypeError(
            f"PowerSGD: the state must be a PowerSGDState, got {type(state).__name__}; register the hook with "
            "ddp.register_comm_hook(PowerSGDState(process_group=None), powerSGD_hook)"
        )
    return state.iter < state.start_powerSGD_iter


def _whole(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    state.maybe_increase_iter(bucket)
    return allreduce_hook(state.process_group, bucket)


def _rank(state: PowerSGDState, n: int, m: int) -> int:
    return min(n, m, state.matrix_approximation_rank)


def _add_error(state: PowerSGDState, bucket: GradBucket, flat: Tensor) -> None:
    """Add to `flat` what was left out of it in the last step, and keep the sum until `_compressed` ends."""
    if not state.use_error_feedback:
        return
    error = state.error_dict.get(bucket.index())
    if error is not None:
        flat.add_(error)
    state.error_dict[bucket.index()] = flat.clone()


def _compressed(
    state: PowerSGDState, bucket: GradBucket, flat: Tensor, groups: list[list[Tensor]], whole: list[Tensor]
) -> Future[Any]:
    """Average what is in `flat`, in place: groups of matrices of one shape as factors, and tensors whole."""
    index, group, label = bucket.index(), state.process_group, bucket.label
    # (g, n, m) for each group of g matrices; views of the bucket where a group has one
    M = [stack(matrices) if len(matrices) > 1 else matrices[0].unsqueeze(0) for matrices in groups]
    Q, q_memory = _first_factors(state, index, M, flat)
    for q in Q:
        _orthogonalize(q, state.orthogonalization_epsilon)
    message = cat([*(t.flatten() for t in whole), *(m.bmm(q).flatten() for m, q in zip(M, Q, strict=True))])
    # Backward waits for this: what comes next needs it, and all ranks must come to it in one order.
    collectives.all_reduce(message, collectives.ReduceOp.AVG, group, label=label)
    parts = message.split(
        [t.numel() for t in whole] + [m.shape[0] * m.shape[1] * q.shape[2] for m, q in zip(M, Q, strict=True)]
    )
    for tensor, part in zip(whole, parts, strict=False):
        tensor.copy_(part.view(tensor.shape))
    P = [part.view(*m.shape[:2], -1) for part, m in zip(parts[len(whole) :], M, strict=True)]
    for m, p, q in zip(M, P, Q, strict=True):
        _orthogonalize(p, state.orthogonalization_epsilon)
        q.copy_(m.transpose(1, 2).bmm(p))
    work = collectives.all_reduce(q_memory, collectives.ReduceOp.AVG, group, async_op=True, label=label)
    assert work is not None
    state.maybe_increase_iter(bucket)
    if bucket.is_last() and state.iter % state.compression_stats_logging_frequency == 0:
        _log.info(
            "PowerSGD, step %d: %.1f times fewer elements (%d, %d sent)",
            state.iter,
            *state.compression_stats(),
        )

    def multiplied(_: Any) -> Tensor:
        for matrices, p, q in zip(groups, P, Q, strict=True):
            for matrix, product in zip(matrices, p.bmm(q.transpose(1, 2)), strict=True):
                matrix.copy_(product)
        if state.use_error_feedback:
            state.error_dict[index].sub_(flat)
        return flat

    return work.get_future().then(multiplied)


def _first_factors(
    state: PowerSGDState, index: int, M: Sequence[Tensor], like: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Q of each group (g, m, r), as views of one memory: the last step's, or random ones."""
    shapes = [(g, m, _rank(state, n, m)) for g, n, m in (matrix.shape for matrix in M)]
    sizes = [math.prod(shape) for shape in shapes]
    memory = state.q_memory_dict.get(index) if state.warm_start else None
    if memory is None:
        generator = Generator().manual_seed(int(state.rng.randint(1_000_000_000)))
        drawn = [randn(shape, generator=generator, dtype=like.dtype).flatten() for shape in shapes]
        memory = cat([empty(0, dtype=like.dtype), *drawn]).to(like.device)
        if state.warm_start:
            state.q_memory_dict[index] = memory
    return [part.view(shape) for part, shape in zip(memory.split(sizes), shapes, strict=True)], memory


def _orthogonalize(matrices: Tensor, epsilon: float) -> None:
    """Make the columns of each of `matrices` (g, n, r) orthonormal, in place."""
    if epsilon == 0 and matrices.dtype in (float32, float64):
        matrices.copy_(qr(matrices)[0])
        return
    for i in range(matrices.shape[2]):
        column = matrices[:, :, i : i + 1]
        column.div_(column.norm(dim=1, keepdim=True) + epsilon)
        rest = matrices[:, :, i + 1 :]
        rest.sub_((column * rest).sum(1, keepdim=True) * column)
