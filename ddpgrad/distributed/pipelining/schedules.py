"""Schedules of a pipeline: in which order a rank computes forwards and backwards of micro-batches in its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...autograd.grad_mode import is_grad_enabled
from ...compat.absent import (
    ScheduleDualPipeV,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
    _PipelineScheduleRuntime,
)
from ...core.tensor import Tensor
from ...utils._pytree import tree_map_only
from .microbatch import split_args_kwargs_into_chunks, split_tensor
from .stage import PipelineStage

__all__ = [
    "PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "_PipelineSchedule", "_PipelineScheduleRuntime",
    "_ScheduleForwardOnly", "get_schedule_class",
]  # fmt: skip


class Action(NamedTuple):
    """The forward, or else the backward, of a micro-batch in a stage."""

    forward: bool
    stage: int
    chunk: int


def _forwards(stage: int, chunks: Sequence[int]) -> Iterator[Action]:
    return (Action(True, stage, chunk) for chunk in chunks)


def _backwards(stage: int, chunks: Sequence[int]) -> Iterator[Action]:
    return (Action(False, stage, chunk) for chunk in chunks)


class _PipelineSchedule:
    """What all schedules do: they split a batch, run the `actions` of this rank, and join outputs and losses.

    loss_fn: of the last stage's output and the target of a micro-batch; without one there is no backward. Specs: see
    `microbatch`. scale_grads: divide gradients by the number of micro-batches, as is right where losses are means; what earlier
    steps left in `.grad` is divided again.
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: tuple[Any, ...] | None = None,
        kwargs_chunk_spec: dict[str, Any] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if not stages:
            raise ValueError(f"{type(self).__name__}: expected the stages of this rank, got none")
        first = stages[0]
        self._stages = {stage.stage_index: stage for stage in stages}
        self._num_stages, self.pp_group_size, self.rank = first.num_stages, first.group_size, first.group_rank
        mine = [s for s, rank in first.stage_index_to_group_rank.items() if rank == self.rank]
        if list(self._stages) != mine:
            raise ValueError(
                f"{type(self).__name__}: rank {self.rank} of {self.pp_group_size} has stages {mine} of {self._num_stages}, got {list(self._stages)}"
            )
        for stage in stages:
            stage.beside = self._stages
        self._n_microbatches, self._loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self._has_backward = loss_fn is not None

    def actions(self) -> Iterator[Action]:
        """What this rank does in a step, in turn."""
        raise NotImplementedError(f"{type(self).__name__} says no order: use one of the schedules that do")

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a batch through the pipeline. Collective over its ranks.

        args: of the first stage; other ranks pass none. kwargs: of the stages of this rank. target: of the last stage, split along
        dimension 0. losses: is filled with those of all micro-batches, on the rank of the last stage. loss_kwargs: for `loss_fn`.
        Returns the output of the last stage for the whole batch on its rank, elsewhere None.
        """
        if self._has_backward and not is_grad_enabled():
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() "
                "context. Please call eval() instead."
            )
        return self._run(args, kwargs, target, losses, return_outputs, loss_kwargs, self._has_backward)

    def eval(self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """As `step`, without backward."""
        return self._run(args, kwargs, target, losses, True, None, False)

    def _run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        losses: list[Tensor] | None,
        return_outputs: bool,
        loss_kwargs: dict[str, Any] | None,
        has_backward: bool,
    ) -> Any:
        n = self._n_microbatches
        specs = self._args_chunk_spec if args else None, self._kwargs_chunk_spec if kwargs else None
        arguments, named = split_args_kwargs_into_chunks(args, kwargs, n, *specs)
        targets = [None] * n if target is None else split_tensor(target, 0, n)
        found: dict[int, Tensor] = {}
        for stage in self._stages.values():
            stage.has_backward = has_backward
            stage.begin(n)
        for forward, number, chunk in self.actions():
            stage = self._stages[number]
            if forward:
                output = stage.forward_one_chunk(chunk, arguments[chunk], named[chunk])
                if stage.is_last and self._loss_fn is not None and (has_backward or target is not None):
                    found[chunk] = self._loss_fn(output, targets[chunk], **(loss_kwargs or {}))
            elif has_backward:
                stage.backward_one_chunk(chunk, found.get(chunk) if stage.is_last else None)
        for stage in self._stages.values():
            stage.end()
            if has_backward:
                stage.scale_grads(n if self.scale_grads else 1)
        if found and losses is not None:
            losses[:] = [found[chunk] for chunk in range(n)]
        last = self._stages.get(self._num_stages - 1)
        if last is None or not return_outputs:
            return None
        merged = last.merged(self._output_merge_spec)
        return tree_map_only(Tensor, Tensor.detach, merged) if has_backward else merged


class PipelineScheduleSingle(_PipelineSchedule):
    """Schedules of one stage a rank."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, *args: Any, **kwargs: Any) -> None:
        super().__init__([stage], n_microbatches, *args, **kwargs)
        self._stage = stage


class PipelineScheduleMulti(_PipelineSchedule):
    """Schedules of several stages a rank: of p ranks, rank r has stages r, r + p, r + 2 p ..."""


class ScheduleGPipe(PipelineScheduleSingle):
    """All forwards, then all backwards ([GPipe](https://arxiv.org/abs/1811.06965))."""

    def actions(self) -> Iterator[Action]:
        chunks = range(self._n_microbatches)
        yield from _forwards(self._stage.stage_index, chunks)
        yield from _backwards(self._stage.stage_index, chunks)


class _ScheduleForwardOnly(PipelineScheduleSingle):
    """Forwards only."""

    def actions(self) -> Iterator[Action]:
        if self._has_backward:
            raise RuntimeError("Forward-only schedule does not support loss computation")
        yield from _forwards(self._stage.stage_index, range(self._n_microbatches))


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward by turns, after as many forwards as there are stages behind: so few activations are kept.

    Raises ValueError: there are fewer micro-batches than stages.
    """

    def __init__(self, stage: PipelineStage, n_microbatches: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(stage, n_microbatches, *args, **kwargs)
        if n_microbatches < self._num_stages:
            raise ValueError(
                f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages ({self._num_stages})."
            )

    def actions(self) -> Iterator[Action]:
        number, n = self._stage.stage_index, self._n_microbatches
        ahead = self._num_stages - 1 - number
        for chunk in range(n + ahead):
            if chunk < n:
                yield Action(True, number, chunk)
            if chunk >= ahead:
                yield Action(False, number, chunk - ahead)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All micro-batches in one stage after another ([Breadth-First Pipeline Parallelism](https://arxiv.org/abs/2211.05953))."""

    def actions(self) -> Iterator[Action]:
        chunks = range(self._n_microbatches)
        for number in self._stages:
            yield from _forwards(number, chunks)
        for number in reversed(self._stages):
            yield from _backwards(number, chunks[::-1])


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """One forward, one backward by turns, where ranks have several stages ([Megatron](https://arxiv.org/abs/2104.04473)).

    A round has about as many micro-batches as there are ranks: a rank takes those of a round through one of its stages, then the next.
    Raises ValueError: the number of micro-batches is no multiple of that of rounds.
    """

    def __init__(
        self, stages: Sequence[PipelineStage], n_microbatches: int, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(stages, n_microbatches, *args, **kwargs)
        rounds = max(1, n_microbatches // self.pp_group_size)
        if n_microbatches % rounds:
            raise ValueError(
                f"Interleaved 1F1B requires the number of microbatches to be a multiple of the number of rounds ({rounds}), but got {n_microbatches}."
            )
        self._round = n_microbatches // rounds

    def actions(self) -> Iterator[Action]:
        own, seen = list(self._stages), Counter[tuple[bool, int]]()
        total = len(own) * self._n_microbatches
        ahead = min(total, (len(own) - 1) * self._round + 2 * (self.pp_group_size - 1 - self.rank))

        def nth(forward: bool, n: int) -> Action:
            local = n // self._round % len(own)
            number = own[local] if forward else own[-1 - local]
            seen[forward, number] += 1
            return Action(forward, number, seen[forward, number] - 1)

        for n in range(total + ahead):
            if n < total:
                yield nth(True, n)
            if n >= ahead:
                yield nth(False, n - ahead)


def get_schedule_class(schedule_name: str) -> Any:
    """The class of a schedule by its name, such as "1F1B"; in small or capital letters."""
    classes = (
        Schedule1F1B, ScheduleInterleaved1F1B, ScheduleGPipe, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble,
        PipelineScheduleSingle, PipelineScheduleMulti, ScheduleZBVZeroBubble, ScheduleDualPipeV,
    )  # fmt: skip
    known = {c.__name__.removeprefix("Schedule"): c for c in classes}
    for name, c in known.items():
        if name.lower() == schedule_name.lower():
            return c
    raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(known)}")
