"""CyclicLR: a cycle between two learning rates (https://arxiv.org/abs/1506.01186)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, for_each_group, set_lr
from .factors import function_state, is_function
from .one_cycle import check_momentum, set_momentum

_MODES: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "triangular": ("cycle", lambda gamma, cycle: 1.0),
    "triangular2": ("cycle", lambda gamma, cycle: 1 / 2.0 ** (cycle - 1)),
    "exp_range": ("iterations", lambda gamma, step: gamma**step),
}


class CyclicLR(LRScheduler):
    """From `base_lr` to `max_lr` in `step_size_up` steps, and back in `step_size_down`; called after every batch.

    The height is scaled by mode: "triangular" not at all, "triangular2" halved every cycle,
    "exp_range" gamma**step; or by `scale_fn` of the cycle (from 1) or of the step, as `scale_mode`
    says. cycle_momentum: momentum (or the first beta) goes the opposite way.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if scale_fn is None and mode not in _MODES:
            raise ValueError("mode is invalid and scale_fn is None")
        base_lrs = for_each_group(optimizer, base_lr, "base_lr")
        self.max_lrs = for_each_group(optimizer, max_lr, "max_lr")
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _MODES[mode][0]
        self.cycle_momentum = cycle_momentum
        groups = optimizer.param_groups
        if last_epoch == -1:
            for group, value in zip(groups, base_lrs, strict=True):
                set_lr(group, value)
        if cycle_momentum:
            self.use_beta1 = check_momentum(optimizer)
            self.base_momentums = for_each_group(optimizer, base_momentum, "base_momentum")
            self.max_momentums = for_each_group(optimizer, max_momentum, "max_momentum")
            if last_epoch == -1:
                for group, low, high in zip(groups, self.base_momentums, self.max_momentums, strict=True):
                    set_momentum(group, high, self.use_beta1)
                    group["base_momentum"], group["max_momentum"] = low, high
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The factor of the height in a cycle, or at a step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return _MODES[self.mode][1](self.gamma, x)

    def get_lr(self) -> list[Any]:
        self._check_within_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        share = 1.0 + self.last_epoch / self.total_size - cycle
        if share <= self.step_ratio:
            height = share / self.step_ratio
        else:
            height = (share - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                set_momentum(group, high - (high - low) * height * scale, self.use_beta1)
        return [
            low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """As of other schedules; of `scale_fn`, what a callable object holds."""
        state = super().state_dict()
        state["_scale_fn_custom"] = function_state(self._scale_fn_custom)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        mine = self._scale_fn_custom
        super().load_state_dict({**state_dict, "_scale_fn_custom": mine})
        saved = state_dict["_scale_fn_custom"]
        if saved is not None and mine is not None and not is_function(mine):
            vars(mine).update(saved)
