"""A stage of a pipeline: some layers of a model, what they pass on to the next stage, and the gradients that come back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ... import autograd
from ...backend.dtype import BY_NAME, int64
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...ops.creation.data import tensor
from ...ops.creation.factories import empty, zeros_like
from ...utils._pytree import tree_leaves
from ..ddp.data_parallel import DistributedDataParallel
from ..fsdp.sharded_module import FSDPModule
from ..messages import irecv, isend
from ..process_group import ProcessGroup, get_rank, get_world_size
from .microbatch import merge_chunks

_HEADER = 128
"""Numbers that go before activations, and say what they are."""

_DTYPES = list(BY_NAME)


class PipeliningShapeError(RuntimeError):
    """Something else is passed from stage to stage than messages can carry, or than was announced."""


class PipelineStage:
    """Layers that one rank computes: stage `stage_index` of `num_stages`.

    submodule: takes what the stage before it returns, and the keyword arguments of this rank's `step`. device: where what arrives is
    put. group: the ranks of the pipeline, by default all; stage s lies on rank s % size. Shapes and dtypes go with what is passed
    on, so micro-batches may differ; with `input_args` (a tensor, or several) other inputs than those are an error.

    Gradients of micro-batches add up; a `DistributedDataParallel` or `fully_shard` model averages them over its own ranks in the last one's backward.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Tensor | Sequence[Tensor] | None = None,
        output_args: Tensor | Sequence[Tensor] | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod, self.device, self.group = submodule, device, group
        self.stage_index, self.num_stages = stage_index, num_stages
        self.group_rank, self.group_size = get_rank(group), get_world_size(group)
        if self.group_size > num_stages:
            raise RuntimeError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}"
            )
        self.stage_index_to_group_rank = {s: s % self.group_size for s in range(num_stages)}
        self.has_backward = False
        self.beside: dict[int, PipelineStage] = {}  # those of this rank, by number
        self.inputs_meta = None if input_args is None else _described(_sequence(input_args))
        self.outputs_meta = None if output_args is None else _described(_sequence(output_args))
        self.begin(1)

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    def begin(self, chunks: int) -> None:
        """Before a step of that many micro-batches."""
        self.chunks, self._backwards = chunks, 0
        self.output_chunks: list[Any] = []
        self._kept: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self._sent: list[Any] = []
        self._left: dict[int, list[Tensor]] = {}  # by tag, what a stage of this rank has left here

    def end(self) -> None:
        """Wait until all that this stage sends has arrived."""
        for work in self._sent:
            work.wait()
        self._sent.clear()

    def forward_one_chunk(
        self, chunk: int, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The output for micro-batch `chunk`, of `args` in the first stage, else of what the stage before it sent."""
        received = [] if self.is_first else self._receive_activations(chunk)
        given: Sequence[Any] = args if self.is_first else received
        self._check(
            "inputs", self.inputs_meta, [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
        )
        with self._unsynchronised():
            output = self.submod(*given, **(kwargs or {}))
        outputs = list(_sequence(output))
        if self.is_last:
            self.output_chunks.append(output)
        else:
            self._check("outputs", self.outputs_meta, outputs)
            self._send_activations(chunk, outputs)
        if self.has_backward:
            self._kept[chunk] = received, outputs
        return output

    def backward_one_chunk(self, chunk: int, loss: Tensor | None = None) -> None:
        """Backward of micro-batch `chunk`: of its loss in the last stage, else of the gradients that the next stage sent."""
        received, outputs = self._kept.pop(chunk)
        self._backwards += 1
        last = self._backwards == self.chunks
        if isinstance(self.submod, FSDPModule):
            self.submod.set_is_last_backward(last)
            self.submod.set_reshard_after_backward(last)
            self.submod.set_requires_gradient_sync(last)
        if last and isinstance(self.submod, DistributedDataParallel):
            self.submod.reducer.prepare_for_backward()
        with nullcontext() if last else self._unsynchronised():
            if loss is not None:
                autograd.backward([loss])
            else:
                differentiable = [o for o in outputs if o.requires_grad]
                places = [empty(o.shape, dtype=o.dtype, device=o.device) for o in differentiable]
                gradients = self._receive(self.stage_index + 1, chunk, 1, places)
                if differentiable:
                    autograd.backward(differentiable, gradients)
        if not self.is_first:
            back = [t for t in received if t.requires_grad]
            gradients = [zeros_like(t) if t.grad is None else t.grad for t in back]
            self._send(self.stage_index - 1, chunk, 1, gradients)

    def scale_grads(self, factor: int) -> None:
        """Divide the gradients of this stage by `factor`, the number of micro-batches where losses are means."""
        for p in self.submod.parameters() if factor != 1 else ():
            if p.grad is not None:
                p.grad.div_(factor)

    def merged(self, spec: Any) -> Any:
        """The output of the last stage for the whole batch."""
        return merge_chunks(self.output_chunks, spec)

    def _unsynchronised(self) -> Any:
        return self.submod.no_sync() if isinstance(self.submod, DistributedDataParallel) else nullcontext()

    def _check(self, what: str, expected: Any, tensors: Sequence[Tensor]) -> None:
        if expected is not None and expected != _described(tensors):
            raise PipeliningShapeError(
                f"stage {self.stage_index}: expected {what} {expected}, got {_described(tensors)}"
            )

    # -- messages ------------------------------------------------------------------------------

    def _tag(self, stage: int, chunk: int, back: int) -> int:
        """Of messages between `stage` and this one: the earlier of both stages, the micro-batch and the direction."""
        return (min(stage, self.stage_index) * self.chunks + chunk) * 2 + back

    def _send_activations(self, chunk: int, outputs: list[Any]) -> None:
        for output in outputs:
            if not isinstance(output, Tensor):
                raise PipeliningShapeError(
                    f"stage {self.stage_index} must return a tensor, or a tuple of tensors, to be passed on; got {type(output).__name__}"
                )
        numbers = [len(outputs)]
        for output in outputs:
            gradient = self.has_backward and output.requires_grad
            numbers += [_DTYPES.index(output.dtype.name), gradient, output.ndim, *output.shape]
        if len(numbers) > _HEADER:
            raise PipeliningShapeError(
                f"stage {self.stage_index} returns {len(outputs)} tensors: too many to be passed on"
            )
        header = tensor(numbers + [0] * (_HEADER - len(numbers)), device=self.device)
        self._send(self.stage_index + 1, chunk, 0, [header, *outputs])

    def _receive_activations(self, chunk: int) -> list[Tensor]:
        header = empty(_HEADER, dtype=int64, device=self.device)
        numbers = iter(self._receive(self.stage_index - 1, chunk, 0, [header])[0].tolist())
        places, differentiable = [], []
        for _ in range(next(numbers)):
            dtype, gradient, ndim = BY_NAME[_DTYPES[next(numbers)]], next(numbers), next(numbers)
            places.append(empty([next(numbers) for _ in range(ndim)], dtype=dtype, device=self.device))
            differentiable.append(gradient)
        received = self._receive(self.stage_index - 1, chunk, 0, places)
        for t, gradient in zip(received, differentiable, strict=True):
            t.requires_grad_(bool(gradient and self.has_backward))
        return received

    def _send(self, stage: int, chunk: int, back: int, tensors: Sequence[Tensor]) -> None:
        self._sent = [work for work in self._sent if not work.is_completed()]
        to, tag = self.stage_index_to_group_rank[stage], self._tag(stage, chunk, back)
        for t in tensors:
            if to == self.group_rank:
                self.beside[stage]._left.setdefault(tag, []).append(t.detach().clone())
                continue
            self._sent.append(isend(t.detach().contiguous(), group=self.group, group_dst=to, tag=tag))

    def _receive(self, stage: int, chunk: int, back: int, places: list[Tensor]) -> list[Tensor]:
        """As many tensors as there are `places`, which are filled where they come from another rank."""
        source, tag = self.stage_index_to_group_rank[stage], self._tag(stage, chunk, back)
        if source == self.group_rank:
            left = self._left[tag]
            return [left.pop(0) for _ in places]
        for work in [irecv(t, group=self.group, group_src=source, tag=tag) for t in places]:
            work.wait()
        return places


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _described(tensors: Sequence[Tensor]) -> list[tuple[list[int], str]]:
    return [(list(t.shape), str(t.dtype)) for t in tensors]
