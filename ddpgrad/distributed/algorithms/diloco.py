"""DiLoCo: ranks train by themselves for hundreds of steps, and then agree by the steps of an outer optimizer.

For slow links: what is sent is once in `sync_every` steps as much as one all-reduce of gradients, or a quarter in 8 bits.
Sources: https://arxiv.org/abs/2311.08105, and for parts that are sent one after the other while training goes on,
https://arxiv.org/abs/2501.18512. Names of options are those of torchft's class of this name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...backend.dtype import int8
from ...core.tensor import Tensor
from ...ops.creation.factories import empty_like, zeros_like
from ...ops.shape.stacking import cat
from .. import collectives
from ..process_group import ProcessGroup
from .model_averaging import ModelAverager, Parameters, write_parts

BLOCK = 256
"""Elements that share a scale where they are sent in 8 bits."""


class DiLoCo(ModelAverager):
    """An averager for `PostLocalSGDOptimizer(optimizer, DiLoCo(model.parameters()))`; the model is not wrapped.

    Parameters become rank 0's at once. Every `sync_every` steps the ranks average how far each has come, and take that as the
    gradient of an SGD with Nesterov's momentum (outer_lr, outer_momentum), whose parameters all go on from.
    fragments: parts of the parameters, of about the same size, which do so at different steps.
    fragment_sync_delay: steps that go on while a part is under way. What they did stays by the share `fragment_update_alpha`
    in [0, 1). should_quantize: sums are sent in 8 bits, with a scale for each 256 elements.
    Ranks have different parameters between two synchronisations: call `synchronize` before evaluation and at the end.
    `state_dict` is the same on all ranks; the state of the optimizer, and of parameters in between, is each rank's own. A
    launcher's Checkpointer, given the model and the PostLocalSGDOptimizer, keeps both for every rank, at any step.
    The bits depend on the number of ranks, not on that of processes.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        sync_every: int = 100,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        fragments: int = 1,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: float = 0.0,
        should_quantize: bool = False,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(process_group)
        if not 1 <= fragments <= sync_every:
            raise ValueError(
                f"DiLoCo: expected 1 <= fragments <= sync_every, got {fragments} and {sync_every}"
            )
        if not 0 <= fragment_sync_delay < sync_every:
            raise ValueError(
                f"DiLoCo: expected 0 <= fragment_sync_delay < sync_every, got {fragment_sync_delay} and {sync_every}"
            )
        if not 0 <= fragment_update_alpha < 1:
            raise ValueError(f"DiLoCo: expected 0 <= fragment_update_alpha < 1, got {fragment_update_alpha}")
        if outer_lr <= 0 or not 0 <= outer_momentum < 1:
            raise ValueError(
                f"DiLoCo: expected outer_lr > 0 and 0 <= outer_momentum < 1, got {outer_lr} and {outer_momentum}"
            )
        parts = _deal([p for p in params if p.requires_grad], fragments)
        if not parts:
            raise ValueError("DiLoCo: no parameter requires a gradient")
        self.sync_every, self.delay, self.alpha = sync_every, fragment_sync_delay, fragment_update_alpha
        self.fragments = [
            _Fragment(part, outer_lr, outer_momentum, should_quantize, self.process_group) for part in parts
        ]

    def average_parameters(self, params: Parameters) -> None:
        """After each step of the optimizer, whose parameters are those given at first. Collective."""
        self.step += 1
        for i, fragment in enumerate(self.fragments):
            fragment.steps += 1
            begins = (i + 1) * self.sync_every // len(self.fragments) % self.sync_every
            late = (self.step - begins) % self.sync_every
            if late == 0 and self.step >= begins:
                fragment.begin()
            if late == self.delay and fragment.under_way:
                fragment.finish(self.alpha)

    def synchronize(self) -> None:
        """Bring all parts together now; all ranks have the same parameters afterwards. Collective.

        A part that was brought together after the last step stays as it is: an outer step without a gradient would go on by
        its momentum alone.
        """
        for fragment in self.fragments:
            if fragment.under_way:
                fragment.finish(self.alpha)
            if fragment.steps:
                fragment.begin()
                fragment.finish(0.0)

    def state_dict(self) -> dict[str, Any]:
        """The steps, and of each part the outer parameters and momentum, and its outer gradient where that is under way.

        Collective where a part is under way: it is waited for.
        """
        outer = [
            {
                "parameters": f.outer,
                "momentum": f.momentum,
                "gradient": f.gradient() if f.under_way else None,
                "steps": f.steps,
            }
            for f in self.fragments
        ]
        return {"step": self.step, "outer": outer}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from `state_dict`; ValueError if it has other parts."""
        sizes = [len(part["parameters"]) for part in state_dict["outer"]]
        if sizes != [len(f.outer) for f in self.fragments]:
            raise ValueError(
                f"DiLoCo: the saved parts have {sizes} elements, and these {[len(f.outer) for f in self.fragments]}: use the "
                "same model and the same number of fragments"
            )
        self.step = state_dict["step"]
        for fragment, part in zip(self.fragments, state_dict["outer"], strict=True):
            fragment.outer.copy_(part["parameters"])
            fragment.momentum.copy_(part["momentum"])
            fragment.go_on_with(part["gradient"])
            fragment.steps = part.get("steps", 1)


class _Fragment:
    """Some parameters: `outer` are those that the ranks agreed on last, in one flat float32 tensor.

    steps: for how many this rank has gone on by itself, away from `outer`.
    """

    def __init__(
        self, parameters: Sequence[Tensor], lr: float, momentum: float, quantize: bool, group: ProcessGroup
    ) -> None:
        self._parameters = parameters
        self._lr, self._mu = lr, momentum
        self._mean = _MeanIn8Bits(group) if quantize else _Mean(group)
        self.under_way, self.steps = False, 0
        self._arrived: Tensor | None = None  # the outer gradient, if it was asked for before `finish`
        self.outer = self._flat()
        collectives.broadcast(self.outer, 0, group)
        self.momentum = zeros_like(self.outer)
        write_parts(self._parameters, self.outer)

    def _flat(self) -> Tensor:
        return cat([p.detach().reshape(-1).float() for p in self._parameters])

    def begin(self) -> None:
        """Hand over how far this rank has come."""
        self.under_way, self.steps = True, 0
        self._mean.begin(self.outer - self._flat())

    def gradient(self) -> Tensor:
        """What is under way; waits for it."""
        if self._arrived is None:
            self._arrived = self._mean.finish()
        return self._arrived

    def go_on_with(self, gradient: Tensor | None) -> None:
        """`gradient` is under way, or nothing."""
        self.under_way, self._arrived = gradient is not None, gradient

    def finish(self, alpha: float) -> None:
        """Take the outer step; alpha: the share that stays of what this rank has now."""
        gradient = self.gradient()
        self.go_on_with(None)
        self.momentum.mul_(self._mu).add_(gradient)
        self.outer.sub_(gradient.add(self.momentum, alpha=self._mu), alpha=self._lr)
        write_parts(self._parameters, self.outer.lerp(self._flat(), alpha) if alpha else self.outer)
        self.steps = max(self.steps, 1) if alpha else 0


class _Mean:
    """The mean over the ranks."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def begin(self, values: Tensor) -> None:
        self._values = values
        self._work = collectives.all_reduce(
            values, collectives.ReduceOp.AVG, self._group, async_op=True, label="outer gradients of DiLoCo"
        )

    def finish(self) -> Tensor:
        assert self._work is not None
        self._work.wait()
        return self._values


class _MeanIn8Bits:
    """The mean over the ranks of values that are rounded to 8 bits on their way to the rank that adds them, and back."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._ranks = group.size()

    def begin(self, values: Tensor) -> None:
        self._length = len(values)
        size = BLOCK * self._ranks
        padded = cat([values, values.new_zeros(-self._length % size)])
        self._sent = _to_8_bits(padded)
        self._came = [empty_like(t) for t in self._sent]
        self._works = [
            collectives.all_to_all_single(came, sent, group=self._group, async_op=True)
            for came, sent in zip(self._came, self._sent, strict=True)
        ]

    def finish(self) -> Tensor:
        for work in self._works:
            assert work is not None
            work.wait()
        parts = _from_8_bits(*self._came).view(self._ranks, -1)
        mine = _to_8_bits(parts.mean(0))
        whole = [t.new_empty((len(t) * self._ranks, *t.shape[1:])) for t in mine]
        for output, part in zip(whole, mine, strict=True):
            collectives.all_gather_into_tensor(output, part, self._group)
        return _from_8_bits(*whole)[: self._length]


def _to_8_bits(values: Tensor) -> tuple[Tensor, Tensor]:
    """(blocks, BLOCK) int8 in -127 to 127, and (blocks, 1) float32 scales."""
    blocks = values.view(-1, BLOCK)
    scales = blocks.abs().amax(1, keepdim=True) / 127
    return (blocks / scales.clamp(min=1e-38)).round().to(int8), scales


def _from_8_bits(numbers: Tensor, scales: Tensor) -> Tensor:
    return (numbers.float() * scales).view(-1)


def _deal(parameters: Sequence[Tensor], parts: int) -> list[list[Tensor]]:
    """Neighbours in up to `parts` parts of about the same size."""
    total, before = sum(p.numel() for p in parameters), 0
    dealt: list[list[Tensor]] = [[] for _ in range(parts)]
    for p in parameters:
        dealt[min(parts - 1, (before + p.numel() // 2) * parts // total)].append(p)
        before += p.numel()
    return [part for part in dealt if part]
