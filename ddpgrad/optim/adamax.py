"""Adamax: Adam by the infinity norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


def adamax(
    F: Any, param: Any, grad: Any, mean: Any, largest: Any, rate: Any, gain1: Any, beta2: Any, eps: Any
) -> Any:
    """One step along the running mean of gradients, over the largest of them, which decays."""
    mean = mean + gain1 * (grad - mean)
    largest = F.maximum(beta2 * largest, F.abs(grad) + eps)
    return param - rate * mean / largest, mean, largest


class Adamax(Elementwise):
    """Adam with the largest gradient so far, decayed by the second beta, in place of the root of the mean square.

    The other arguments: see `Elementwise`. Source: arXiv:1412.6980, section 7.1
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, "exp_avg", "exp_inf")

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        beta1, beta2 = group["betas"]
        rate = group["lr"] / (1 - beta1 ** run.next_step(skip))
        return Update(adamax, (rate, 1 - beta1, beta2, group["eps"]), group["weight_decay"])
