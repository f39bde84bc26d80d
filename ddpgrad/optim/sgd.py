"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

from .._tensor import Tensor
from .flat import zeros_like
from .optimizer import Closure, Optimizer, Params, evaluated


class SGD(Optimizer):
    """p -= lr * v, where v = momentum * v + (1 - dampening) * (grad + weight_decay * p).

    nesterov: looks ahead by one momentum step. maximize: goes up instead of down. foreach and
    fused are accepted for PyTorch's sake; updates are always fused.
    Source: https://pytorch.org/docs/stable/generated/torch.optim.SGD.html
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        for option in ("lr", "momentum", "weight_decay"):
            if group[option] < 0:
                what = "learning rate" if option == "lr" else f"{option} value"
                raise ValueError(f"Invalid {what}: {group[option]}")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        if group["differentiable"]:
            raise NotImplementedError("SGD: differentiable=True is not supported")

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _new_state(self, parameter: Tensor, name: str) -> Tensor:
        return zeros_like(parameter)

    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters from their gradients; the result of `closure`, called first, if given."""
        loss = evaluated(closure)
        for group in self.param_groups:
            options = (
                float(group["lr"]), group["momentum"], group["dampening"], float(group["weight_decay"]),
                group["nesterov"], group["maximize"],
            )  # fmt: skip
            for run in self._runs(group):
                run.backend.sgd_step_(
                    run.param, run.grad, run.state.get("momentum_buffer"), *options, run.first
                )
                run.finish()
        return loss
