"""Adadelta: steps in the units of the parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


def adadelta(
    F: Any, param: Any, grad: Any, square: Any, moved: Any, lr: Any, rho: Any, gain: Any, eps: Any
) -> Any:
    """One step along the gradient, over its root mean square, times that of former steps."""
    square = rho * square + gain * grad * grad
    change = F.sqrt(moved + eps) / F.sqrt(square + eps) * grad
    return param - lr * change, square, rho * moved + gain * change * change


class Adadelta(Elementwise):
    """Steps along the gradient over its root mean square, times the root mean square of former steps.

    rho: how much of the means stays. The other arguments: see `Elementwise`. Source: arXiv:1212.5701
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _check_options(self, group: Mapping[str, Any]) -> None:
        super()._check_options(group)
        if not 0.0 <= group["rho"] <= 1.0:
            raise ValueError(f"Invalid rho value: {group['rho']}")

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, "square_avg", "acc_delta")

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        run.next_step(skip)
        rho = group["rho"]
        return Update(adadelta, (group["lr"], rho, 1 - rho, group["eps"]), group["weight_decay"])
