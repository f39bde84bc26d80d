"""Rprop: steps by the sign of the gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .layout import full_like
from .optimizer import ParamsT


def rprop(
    F: Any, param: Any, grad: Any, before: Any, size: Any, shorter: Any, longer: Any, least: Any, most: Any
) -> Any:
    """A longer step where the gradient keeps its sign, a shorter one next time where it has changed."""
    agreement = grad * before
    size = F.where(agreement > 0, longer * size, F.where(agreement < 0, shorter * size, size))
    size = F.where(size < least, least, F.where(size > most, most, size))
    grad = F.where(agreement < 0, 0.0, grad)
    return param - F.sign(grad) * size, grad, size


class Rprop(Elementwise):
    """Resilient backpropagation: each element has a step size, which follows the sign of its gradient.

    lr: the first step size. etas: the factors by which it shrinks and grows. step_sizes: the least
    and the largest. For full batches. The other arguments: see `Elementwise`.
    Source: Riedmiller and Braun, ICNN 1993, https://doi.org/10.1109/ICNN.1993.298623
    """

    _counts_on_device = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _check_options(self, group: Mapping[str, Any]) -> None:
        super()._check_options(group)
        shorter, longer = group["etas"]
        if not 0.0 < shorter < 1.0 < longer:
            raise ValueError(f"Invalid eta values: {shorter}, {longer}")

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, "prev", "step_size")

    def _new_state(self, parameter: Tensor, name: str, group: Mapping[str, Any]) -> Tensor:
        if name == "step_size":
            return full_like(parameter, float(group["lr"]))
        return super()._new_state(parameter, name, group)

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        run.next_step(skip)
        return Update(rprop, (*group["etas"], *group["step_sizes"]))
