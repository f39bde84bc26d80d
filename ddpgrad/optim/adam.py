"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from .._tensor import Tensor
from .flat import STEP, new_step, zeros_like
from .optimizer import Closure, Optimizer, Params, evaluated


class Adam(Optimizer):
    """Steps of size about `lr`, scaled by running means of the gradient and its square.

    weight_decay: added to the gradient, or with `decoupled_weight_decay` taken off the
    parameter. amsgrad: divides by the largest mean square so far. maximize: goes up instead
    of down. foreach, fused and capturable are accepted for PyTorch's sake; updates are always
    fused. Sources: arXiv:1412.6980, https://openreview.net/forum?id=ryQu7f-RZ (AMSGrad).
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
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
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def _check_options(self, group: dict[str, Any]) -> None:
        for option, what in (
            ("lr", "learning rate"),
            ("eps", "epsilon value"),
            ("weight_decay", "weight_decay value"),
        ):
            if group[option] < 0:
                raise ValueError(f"Invalid {what}: {group[option]}")
        for i, beta in enumerate(group["betas"]):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        if group["differentiable"]:
            raise NotImplementedError(f"{type(self).__name__}: differentiable=True is not supported")

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        names = (STEP, "exp_avg", "exp_avg_sq")
        return (*names, "max_exp_avg_sq") if group["amsgrad"] else names

    def _new_state(self, parameter: Tensor, name: str) -> Tensor:
        return new_step() if name == STEP else zeros_like(parameter)

    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters from their gradients; the result of `closure`, called first, if given."""
        loss = evaluated(closure)
        for group in self.param_groups:
            beta1, beta2 = (float(beta) for beta in group["betas"])
            rates = (float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"])
            decoupled, maximize = group["decoupled_weight_decay"], group["maximize"]
            for run in self._runs(group):
                state = run.state
                run.backend.adam_step_(
                    run.param, run.grad, state["exp_avg"], state["exp_avg_sq"], state.get("max_exp_avg_sq"),
                    *rates, decoupled, run.next_step(), maximize, 1.0,
                )  # fmt: skip
                run.finish()
        return loss


class AdamW(Adam):
    """Adam whose weight decay is taken off the parameters directly (arXiv:1711.05101)."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
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
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # states of PyTorch before 2.7 do not say it
            group["decoupled_weight_decay"] = True
