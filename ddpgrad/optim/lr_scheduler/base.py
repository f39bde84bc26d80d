"""LRScheduler: the base of all schedules, which counts epochs (or steps) and writes the learning rates."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.face import all_in
from ...core.taping import taped
from ...core.tensor import Tensor
from ..optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible: the closed form of "
    "the schedule is used for it, where there is one. Use `scheduler.step()`."
)


class LRScheduler:
    """Base of all schedules.

    A subclass defines `get_lr`, the learning rates at `last_epoch` computed from those at the
    epoch before, so that schedules can be chained; and, where there is one, the closed form
    `_get_closed_form_lr` from `base_lrs`. last_epoch: -1 at the start of training; to resume
    without a state_dict, the index of the last epoch, with `initial_lr` in every group. A learning
    rate that is a tensor stays that tensor.
    """

    __subclasses__ = all_in(__package__ or "", __name__.replace("lr_scheduler.base", "swa_utils"))
    # Schedules that users wrote look at these.
    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer: load the "
                    "optimizer's state_dict first, or start with last_epoch=-1"
                )
        self.base_lrs = [_copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the first learning rates."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule is, but for its optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state_dict. The optimizer's own must be loaded too: it has the learning rates."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The learning rates of the groups as this schedule set them last."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The learning rates at `last_epoch`, for `step`."""
        raise NotImplementedError

    def _get_closed_form_lr(self) -> list[Any] | None:
        """The learning rates at `last_epoch` from the base ones; None where there is no closed form."""
        return None

    def _current(self) -> list[Any]:
        return [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def _check_within_step(self) -> None:
        """`get_lr` computes from the present learning rates, so nobody but `step` may take it for them."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                stacklevel=3,
            )

    @taped
    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to `epoch` (deprecated), and set the learning rates."""
        if self._step_count == 1 and not self._is_initial and not self.optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite order: "
                "`optimizer.step()` before `lr_scheduler.step()`; otherwise the first value of the learning rate "
                "schedule is skipped. See https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            values = None
            if epoch is None:
                self.last_epoch += 1
            else:
                self.last_epoch = epoch
                values = self._get_closed_form_lr()
            self._set(self.get_lr() if values is None else values)
        finally:
            self._get_lr_called_within_step = False

    def _set(self, values: list[Any]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_lr(group, value)
        self._last_lr: list[Any] = self._current()


class _LRScheduler(LRScheduler):
    """The former name of `LRScheduler`."""


def set_lr(group: dict[str, Any], value: Any) -> None:
    """Give a group a learning rate; a tensor is filled."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(float(value))
    else:
        group["lr"] = value


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def for_each_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    """`value`, one for each group, as a list; `ValueError` for a list of another length."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [_copied(value) for _ in range(groups)]
    if len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
            f"param_groups has {groups}."
        )
    return [_copied(v) for v in value]
