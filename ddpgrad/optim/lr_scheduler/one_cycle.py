"""OneCycleLR: one rise to a large learning rate, then annealing (https://arxiv.org/abs/1708.07120)."""

from __future__ import annotations

import math
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, for_each_group


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr over `pct_start` of the steps, then down to initial / final_div_factor.

    Momentum (or the first beta) goes the opposite way. Called after every batch; needs
    `total_steps`, or `epochs` and `steps_per_epoch`. three_phase: back to the initial lr
    first, symmetrically.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0 or not isinstance(total_steps, int):
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.total_steps, self._anneal_func_type = total_steps, anneal_strategy
        self.cycle_momentum = cycle_momentum
        self._schedule_phases = _phases(total_steps, pct_start, three_phase)
        groups = optimizer.param_groups
        if last_epoch == -1:
            for group, highest in zip(groups, for_each_group(optimizer, max_lr, "max_lr"), strict=True):
                group["initial_lr"] = highest / div_factor
                group["max_lr"] = highest
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self.use_beta1 = check_momentum(optimizer)
            if last_epoch == -1:
                low, high = (
                    for_each_group(optimizer, values, name)
                    for values, name in ((base_momentum, "base_momentum"), (max_momentum, "max_momentum"))
                )
                for group, base, highest in zip(groups, low, high, strict=True):
                    set_momentum(group, highest, self.use_beta1)
                    group["base_momentum"], group["max_momentum"] = base, highest
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        self._check_within_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        start = 0.0
        phase = self._schedule_phases[0]
        for following in self._schedule_phases[1:]:
            if step <= phase["end_step"]:
                break
            start, phase = phase["end_step"], following
        share = (step - start) / (phase["end_step"] - start)
        values = []
        for group in self.optimizer.param_groups:
            values.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                momentum = self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                set_momentum(group, momentum, self.use_beta1)
        return values

    def _between(self, start: float, end: float, share: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _phases(total: int, share: float, three: bool) -> list[dict[str, Any]]:
    """Each part of the cycle: its last step, and the group options that lr and momentum go between."""
    up = _phase(float(share * total) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three:
        return [up, _phase(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    return [
        up,
        _phase(float(2 * share * total) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
        _phase(total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
    ]


def _phase(end: float, *options: str) -> dict[str, Any]:
    names = ("start_lr", "end_lr", "start_momentum", "end_momentum")
    return {"end_step": end, **dict(zip(names, options, strict=True))}


def check_momentum(optimizer: Optimizer) -> bool:
    """Whether its momentum is the first beta; `ValueError` if it has none."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def set_momentum(group: dict[str, Any], momentum: float, beta1: bool) -> None:
    """Give a group a momentum, or a first beta."""
    if beta1:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum
