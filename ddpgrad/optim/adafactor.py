"""Adafactor: Adam's mean square in the memory of its rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import Tensor, finfo, no_grad
from .elementwise import options
from .flat import STEP
from .layout import new_scalar
from .optimizer import Closure, Optimizer, ParamsT, evaluated


class Adafactor(Optimizer):
    """Steps along the gradient over the root of its mean square, which is kept by rows and by columns only.

    The mean square of a matrix is taken as row means times column means over the mean of all; in
    more dimensions, of the last two. lr: a bound for the relative step size 1 / sqrt(step).
    beta2_decay: the share of a new square in the mean is step**beta2_decay. eps: the least root
    mean square of a gradient (None: the type's epsilon) and of a parameter. d: the largest root
    mean square of an update. Source: arXiv:1804.04235
    """

    _not_negative = ("lr", "weight_decay")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _check_options(self, group: Mapping[str, Any]) -> None:
        super()._check_options(group)
        if group["beta2_decay"] > 0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {group['beta2_decay']}")
        for i, eps in enumerate(group["eps"]):
            if eps is not None and eps < 0:
                raise ValueError(f"epsilon{i + 1} should be >= 0 but is: {eps}")
        if group["d"] < 1:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {group['d']}")

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters from their gradients; the result of `closure`, called first, if given."""
        loss = evaluated(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, -parameter.grad if group["maximize"] else parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, grad: Tensor, group: Mapping[str, Any]) -> None:
        self._refuse_sparse(grad)
        if parameter.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        state = self.state[parameter] or self._new_state(parameter)
        state[STEP] += 1
        step, lr = float(state[STEP]), float(group["lr"])
        least, least_size = group["eps"]
        least = finfo(parameter.dtype).eps if least is None else least
        size = max(least_size, _root_mean_square(parameter)) * min(lr, step**-0.5)
        if group["weight_decay"]:
            parameter.mul_(1 - lr * group["weight_decay"])

        gain = step ** group["beta2_decay"]
        if grad.ndim > 1:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(grad.square().mean(-1, keepdim=True), gain)
            columns.lerp_(grad.square().mean(-2, keepdim=True), gain)
            square = rows @ columns / rows.mean(-2, keepdim=True).clamp(min=least)
        else:
            square = state["variance"].lerp_(grad.square(), gain)
        change = square.clamp(min=least * least).rsqrt() * grad
        parameter.sub_(change, alpha=size / max(1.0, _root_mean_square(change) / group["d"]))

    def _new_state(self, parameter: Tensor) -> dict[str, Any]:
        shape = tuple(parameter.shape)
        state = self.state[parameter]
        state[STEP] = new_scalar(0.0)
        if parameter.ndim > 1:
            state["row_var"] = parameter.new_zeros((*shape[:-1], 1))
            state["col_var"] = parameter.new_zeros((*shape[:-2], 1, shape[-1]))
        else:
            state["variance"] = parameter.new_zeros(shape)
        return state


def _root_mean_square(x: Tensor) -> float:
    return float(x.norm()) / x.numel() ** 0.5
