"""ASGD: stochastic gradient descent that averages the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


def asgd(F: Any, param: Any, grad: Any, mean: Any, rate: Any, share: Any) -> Any:
    """One step down the gradient, and the new parameter's share in the mean."""
    param = param - rate * grad
    return param, mean + share * (param - mean)


class ASGD(Elementwise):
    """Gradient descent at a rate of lr / (1 + lambd * lr * step)**alpha, with the mean of the parameters beside it.

    The mean, `state[p]["ax"]`, begins after `t0` steps; before that it is the parameter. lambd: also
    the decay of the parameters per rate. The other arguments: see `Elementwise`.
    Source: https://dl.acm.org/doi/10.1137/0330046
    """

    _counts_on_device = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, "eta", "mu", "ax")

    def _new_state(self, parameter: Tensor, name: str, group: Mapping[str, Any]) -> Tensor:
        if name in ("eta", "mu"):
            return self._scalar(float(group["lr"]) if name == "eta" else 1.0, parameter, group)
        return super()._new_state(parameter, name, group)

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        rate, share = run.scalar("eta"), run.scalar("mu")
        step = run.next_step(skip)
        lr, lambd = group["lr"], group["lambd"]
        slowed, since = lr / (1 + lambd * lr * step) ** group["alpha"], step - group["t0"]
        on_host = isinstance(step, float)
        run.scalars["eta"][...] = float(slowed) if on_host else slowed
        run.scalars["mu"][...] = 1 / (max(1, since) if on_host else run.backend.maximum(since, 1.0))
        return Update(asgd, (rate, share), group["weight_decay"], 1 - lambd * rate)
