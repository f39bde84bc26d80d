"""RAdam: Adam with a rectified adaptive step while its variance is uncertain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .adam import adam
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


def unscaled(
    F: Any, param: Any, grad: Any, mean: Any, square: Any, lr: Any, gain1: Any, beta2: Any, gain2: Any
) -> Any:
    """One step along the running mean of gradients; their squares are only noted."""
    mean = mean + gain1 * (grad - mean)
    return param - lr * mean, mean, beta2 * square + gain2 * grad * grad


class RAdam(Elementwise):
    """Adam with the variance of its scale rectified: while that is unknown, plain steps along the mean.

    decoupled_weight_decay: takes the decay off the parameter, as AdamW. The other arguments: see `Elementwise`.
    Source: arXiv:1908.03265
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, "exp_avg", "exp_avg_sq")

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        step = run.next_step(skip)
        lr, decay = group["lr"], group["weight_decay"]
        beta1, beta2 = group["betas"]
        rate, left = lr / (1 - beta1**step), 1 - beta2**step
        means = (1 - beta1, beta2, 1 - beta2)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / left  # of the average that the mean square amounts to
        if length > 5:
            rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            # The root of the mean square has no correction of its own here, and eps is added to it as it is.
            rule, numbers = adam, (rate * (rectified * left) ** 0.5, *means, 1.0, group["eps"])
        else:
            rule, numbers = unscaled, (rate, *means)
        if group["decoupled_weight_decay"]:
            return Update(rule, numbers, shrink=1 - lr * decay)
        return Update(rule, numbers, decay)
