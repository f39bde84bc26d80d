"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


def adam(
    F: Any, param: Any, grad: Any, mean: Any, square: Any,
    lr: Any, gain1: Any, beta2: Any, gain2: Any, correction: Any, eps: Any,
) -> Any:  # fmt: skip
    """One step along the running mean of gradients, over the root of that of their squares."""
    mean = mean + gain1 * (grad - mean)
    square = beta2 * square + gain2 * grad * grad
    return param - lr * mean / (F.sqrt(square) * correction + eps), mean, square


def amsgrad(
    F: Any, param: Any, grad: Any, mean: Any, square: Any, highest: Any,
    lr: Any, gain1: Any, beta2: Any, gain2: Any, correction: Any, eps: Any,
) -> Any:  # fmt: skip
    """The same over the root of the largest mean square so far."""
    mean = mean + gain1 * (grad - mean)
    square = beta2 * square + gain2 * grad * grad
    highest = F.maximum(highest, square)
    return param - lr * mean / (F.sqrt(highest) * correction + eps), mean, square, highest


class Adam(Elementwise):
    """Steps of size about `lr`, scaled by running means of the gradient and its square.

    weight_decay: added to the gradient, or with `decoupled_weight_decay` taken off the
    parameter. amsgrad: divides by the largest mean square so far. The other arguments: see `Elementwise`.
    Sources: arXiv:1412.6980, https://openreview.net/forum?id=ryQu7f-RZ (AMSGrad).
    """

    _counts_on_device = True
    _shown_as = "Adam"  # in errors; AdamW's too, as in PyTorch

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        names = (STEP, "exp_avg", "exp_avg_sq")
        return (*names, "max_exp_avg_sq") if group["amsgrad"] else names

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        step = run.next_step(skip)
        lr, decay = group["lr"], group["weight_decay"]
        beta1, beta2 = group["betas"]
        correction = (1 - beta2**step) ** -0.5
        numbers = (lr / (1 - beta1**step), 1 - beta1, beta2, 1 - beta2, correction, group["eps"])
        rule = amsgrad if group["amsgrad"] else adam
        if group["decoupled_weight_decay"]:
            return Update(rule, numbers, shrink=1 - lr * decay)
        return Update(rule, numbers, decay)


class AdamW(Adam):
    """Adam whose weight decay is taken off the parameters directly (arXiv:1711.05101)."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, **options(locals()), decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # states of PyTorch before 2.7 do not say it
            group["decoupled_weight_decay"] = True
