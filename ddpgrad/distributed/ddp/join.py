"""Uneven inputs: a rank without batches takes part in what the others still do.

Before each step the ranks tell one another who still has a batch. Source of the idea and of the
names: https://pytorch.org/docs/stable/distributed.algorithms.join.html
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.tensor import Tensor
from ..process_group import ProcessGroup
from .data_parallel import DistributedDataParallel
from .zero import ZeroRedundancyOptimizer


class JoinHook:
    """What a rank that has run out does in the place of an object that others use."""

    def main_hook(self) -> None:
        """Called for each step of the others: the collectives that they make in it."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called on all ranks when none has a batch. is_last_joiner: whether this one was among the last that had."""


class _JoinConfig(NamedTuple):
    """What `Join` has told an object that it joins."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """An object that `Join` can join. Before its collectives of a step it calls `Join.notify_join_context(self)`."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook; kwargs are those of `Join`."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of the object's collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> ProcessGroup:
        """The ranks that take part, the same for all objects that are joined together."""


Joinable.register(DistributedDataParallel)
Joinable.register(ZeroRedundancyOptimizer)


class Presence:
    """The ranks that said last that they still have batches."""

    def __init__(self, group: ProcessGroup, throws: bool) -> None:
        self.communicator, self._throws = group.communicator, throws
        self.size = self.communicator.size
        self.active = list(range(self.size))

    def tell(self, has_batch: bool) -> bool:
        """Say whether this rank has a batch, and hear it of all; False when none has. Collective."""
        present = np.zeros(self.size, np.uint8)
        present[self.communicator.rank] = has_batch
        self.communicator.all_reduce(present, "max", "which ranks still have batches")
        if not present.any():
            return False
        self.active = np.flatnonzero(present).tolist()
        if self._throws and len(self.active) < self.size:
            gone = sorted(set(range(self.size)) - set(self.active))
            raise RuntimeError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks. "
                + " ".join(f"Rank {rank} exhausted all inputs." for rank in gone)
            )
        return True


class Join:
    """Around a training loop: ranks may use `joinables` in different numbers of steps, all in the same order.

    enable: False, it does nothing. throw_on_early_termination: instead, all ranks raise RuntimeError when the first has run out.
    kwargs: for the hooks, as `divide_by_initial_world_size` for `DistributedDataParallel`. A model comes before the optimizer
    that updates it. A rank that has run out adds gradients of zero to the steps of the others, and at the end takes over the
    model of a rank that had the most batches; the state of an optimizer that is not divided stays behind, which loops over
    loaders of `launcher.setup` avoid. Every forward in training is followed by its backward, and replicas are not compared.
    """

    def __init__(
        self,
        joinables: Sequence[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        others = [type(joinable).__name__ for joinable in joinables if not hasattr(joinable, "join_hook")]
        if others:
            raise TypeError(
                f"Join: expected objects with a join_hook, such as models and Joinables, got {', '.join(others)}"
            )
        self._joinables, self._enable = list(joinables), enable
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        groups = [joinable.join_process_group for joinable in joinables]
        if any(group != groups[0] for group in groups):
            raise ValueError("Using join context manager with multiple process groups")
        self._presence = Presence(groups[0], throw_on_early_termination)
        self._throws = throw_on_early_termination

    def __enter__(self) -> None:
        self._joinables[0]._join_presence = self._presence
        if not all(isinstance(hook, (ModelJoinHook, OptimizerJoinHook)) for hook in self._hooks):
            # Hooks of the program make their sums in other lines than what they stand in for.
            self._presence.communicator.unlabelled = "a sum within Join"
        for number, (joinable, hook) in enumerate(zip(self._joinables, self._hooks, strict=True)):
            joinable._join_config = _JoinConfig(self._enable, self._throws, not number)
            if self._enable and isinstance(hook, ModelJoinHook):
                hook.enter(self._presence)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            if self._enable and kind is None:
                self._shadow()
        finally:
            del self._joinables[0]._join_presence
            self._presence.communicator.unlabelled = ""
            for joinable, hook in zip(self._joinables, self._hooks, strict=True):
                joinable._join_config = _JoinConfig.construct_disabled_join_config()
                if isinstance(hook, ModelJoinHook):
                    hook.leave()

    def _shadow(self) -> None:
        """Be there for the steps of the others, until no rank has a batch."""
        is_last = True
        while self._presence.tell(has_batch=False):
            is_last = False
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(is_last)

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        """Say that this rank has a batch, before the collectives of `joinable` in a step. Only the first that is joined does."""
        config = getattr(joinable, "_join_config", None)
        if config is None:
            raise AssertionError(
                f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor"
            )
        if config.enable and config.is_first_joinable:
            joinable._join_presence.tell(has_batch=True)


class ModelJoinHook(JoinHook):
    """The steps of a model on a rank without batches: gradients of zero. `first` is the least of the ranks that have some."""

    _presence: Presence

    def __init__(self, model: DistributedDataParallel, divide_by_all: bool) -> None:
        self._model, self._divide_by_all = model, divide_by_all
        self._replaced: list[tuple[Tensor, Tensor | None]] = []  # parameters, and the gradients that they had

    @property
    def first(self) -> int:
        return self._presence.active[0]

    def enter(self, presence: Presence) -> None:
        self._presence, self._model.joined = presence, self

    def begin(self) -> None:
        """Before the forward of a step on a rank with a batch."""
        Join.notify_join_context(self._model)
        self._weigh()

    def main_hook(self) -> None:
        self._weigh()
        self._model._share_buffers()
        reducer = self._model.reducer
        reducer.shadow()
        self._give_back()
        for bucket in reducer.buckets:  # for an optimizer of which each rank has a part
            for number, average in zip(bucket.layout.indices, bucket.views, strict=True):
                if number not in reducer.sparse:
                    parameter = reducer.parameters[number]
                    self._replaced.append((parameter, parameter.grad))
                    parameter.grad = average

    def _give_back(self) -> None:
        """Let parameters have the gradients that this rank's own steps left."""
        for parameter, grad in self._replaced:
            parameter.grad = grad
        self._replaced.clear()

    def post_hook(self, is_last_joiner: bool) -> None:
        self._model._share_all(self._presence.active[-1])

    def leave(self) -> None:
        self._give_back()
        self._model.joined = None
        self._model.reducer.scale = 1.0
        self._model.reducer.weighted().expected = None

    def _weigh(self) -> None:
        there = len(self._presence.active)
        self._model.reducer.scale = 1.0 if self._divide_by_all else self._presence.size / there
        self._model.reducer.weighted().expected = there


class OptimizerJoinHook(JoinHook):
    """The steps of an optimizer on a rank without batches: it updates its parameters by the gradients that others have, too."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer.step_of_others()


__all__ = ["Join", "JoinHook", "Joinable", "_JoinConfig"]
