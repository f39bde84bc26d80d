"""NAdam: Adam with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT

_PRODUCT = "mu_product"


def nadam(
    F: Any, param: Any, grad: Any, mean: Any, square: Any,
    rate: Any, mean_rate: Any, gain1: Any, beta2: Any, gain2: Any, correction: Any, eps: Any,
) -> Any:  # fmt: skip
    """One step along the gradient and the running mean of gradients, each at a rate of its own."""
    mean = mean + gain1 * (grad - mean)
    square = beta2 * square + gain2 * grad * grad
    return param - (rate * grad + mean_rate * mean) / (F.sqrt(square) * correction + eps), mean, square


class NAdam(Elementwise):
    """Adam with Nesterov momentum; `momentum_decay` says how fast the first beta reaches its full size.

    decoupled_weight_decay: takes the decay off the parameter, as AdamW. The other arguments: see `Elementwise`.
    Source: https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ
    """

    _not_negative = ("lr", "eps", "weight_decay", "momentum_decay")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, _PRODUCT, "exp_avg", "exp_avg_sq")

    def _new_state(self, parameter: Tensor, name: str, group: Mapping[str, Any]) -> Tensor:
        if name == _PRODUCT:
            return self._scalar(1.0, parameter, group)
        return super()._new_state(parameter, name, group)

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        step = run.next_step(skip)
        lr, decay, slope = group["lr"], group["weight_decay"], group["momentum_decay"]
        beta1, beta2 = group["betas"]
        momentum, following = (beta1 * (1 - 0.5 * 0.96 ** (s * slope)) for s in (step, step + 1))
        product = run.multiplied(_PRODUCT, momentum)
        rate, mean_rate = lr * (1 - momentum) / (1 - product), lr * following / (1 - product * following)
        correction = (1 - beta2**step) ** -0.5
        numbers = (rate, mean_rate, 1 - beta1, beta2, 1 - beta2, correction, group["eps"])
        if group["decoupled_weight_decay"]:
            return Update(nadam, numbers, shrink=1 - lr * decay)
        return Update(nadam, numbers, decay)
