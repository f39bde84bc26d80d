"""Schedules composed of others: in sequence, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, set_lr
from .plateau import ReduceLROnPlateau


class _Combined(LRScheduler):
    """Holds further schedules of one optimizer; its state_dict has theirs."""

    _schedulers: list[Any]

    def _hold(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> Optimizer:
        if not schedulers:
            raise ValueError(f"{type(self).__name__} expects at least one scheduler, but got none")
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(
                    f"{type(self).__name__}: element {i} is no scheduler: {type(scheduler).__name__}"
                )
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{type(self).__name__} does not support ReduceLROnPlateau, whose step needs a metric, but there "
                    f"is one at index {i}"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"{type(self).__name__} expects all schedulers to belong to the same optimizer, but the one at "
                    f"index {i} has another"
                )
        self._schedulers = list(schedulers)
        return optimizer

    def state_dict(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_Combined):
    """The first schedule until the first of `milestones`, then the second from its own start, and so on."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        self.optimizer = self._hold(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got {len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # Each schedule took its first step when it was made, one on top of the other. Take all back,
        # and let the first one start.
        for group in optimizer.param_groups:
            set_lr(group, group["initial_lr"])
        for scheduler in schedulers:
            _take_back(scheduler)
        first = schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch and set the learning rates."""
        self.last_epoch += 1
        which = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[which]
        if which > 0 and self._milestones[which - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _take_back(scheduler: Any) -> None:
    if isinstance(scheduler, _Combined):
        for inner in scheduler._schedulers:
            _take_back(inner)
    elif hasattr(scheduler, "last_epoch"):
        scheduler.last_epoch -= 1


class ChainedScheduler(_Combined):
    """All schedules step together, each from the learning rates that the one before left."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self.optimizer = self._hold(schedulers, optimizer)
        self._last_lr = self._current()

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch and set the learning rates."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current()
