"""ReduceLROnPlateau: a smaller learning rate when a metric stops improving."""

from __future__ import annotations

import math
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, for_each_group, set_lr


class ReduceLROnPlateau(LRScheduler):
    """lr * factor after more than `patience` epochs without improvement of the metric given to `step`.

    mode: "min" or "max". threshold: what counts as an improvement, "rel" or "abs" by
    `threshold_mode`. cooldown: epochs after a reduction that do not count. A change of the
    learning rate below `eps` is not made.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.default_min_lr = min_lr if isinstance(min_lr, (int, float)) else None  # of groups to come
        self.min_lrs = for_each_group(optimizer, min_lr, "min_lr")
        self.optimizer = optimizer
        self.mode, self.factor, self.patience, self.cooldown, self.eps = mode, factor, patience, cooldown, eps
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.last_epoch = 0
        self._last_lr = self._current()
        self._reset()

    def _reset(self) -> None:
        self.mode_worse = math.inf if self.mode == "min" else -math.inf  # what any metric improves on
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """True for `cooldown` epochs after a reduction."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        """Whether `value` improves on `best` by more than the threshold."""
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            best = best * (1 + sign * self.threshold)
        else:
            best = best + sign * self.threshold
        return value < best if self.mode == "min" else value > best

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Tell the metric of one more epoch (or of `epoch`)."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(value, self.best):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current()

    def _reduce_lr(self, epoch: int) -> None:
        """What a reduction is, which libraries replace."""
        count = len(self.optimizer.param_groups)
        if count != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer`, {count}, differs from when `ReduceLROnPlateau` was "
                    f"made, {len(self.min_lrs)}: append those of the new groups to `min_lrs`"
                )
            self.min_lrs = [self.default_min_lr] * count
        for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            reduced = max(float(group["lr"]) * self.factor, lowest)
            if float(group["lr"]) - reduced > self.eps:
                set_lr(group, reduced)
