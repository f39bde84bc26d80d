"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.tensor import Tensor
from .elementwise import Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


def sgd(F: Any, param: Any, grad: Any, lr: Any) -> Any:
    """One step down the gradient."""
    return param - lr * grad


def sgd_momentum(F: Any, param: Any, grad: Any, velocity: Any, lr: Any, momentum: Any, gain: Any) -> Any:
    """One step along the running sum of gradients."""
    velocity = momentum * velocity + gain * grad
    return param - lr * velocity, velocity


def sgd_nesterov(F: Any, param: Any, grad: Any, velocity: Any, lr: Any, momentum: Any, gain: Any) -> Any:
    """The same, ahead by one step of the momentum."""
    velocity = momentum * velocity + gain * grad
    return param - lr * (grad + momentum * velocity), velocity


class SGD(Elementwise):
    """p -= lr * v, where v = momentum * v + (1 - dampening) * (grad + weight_decay * p).

    nesterov: looks ahead by one momentum step. The other arguments: see `Elementwise`.
    Source: https://pytorch.org/docs/stable/generated/torch.optim.SGD.html
    """

    _not_negative = ("lr", "weight_decay", "momentum")

    _counts_on_device = True  # there is nothing to count

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, options(locals()))

    def _check_options(self, group: Mapping[str, Any]) -> None:
        super()._check_options(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    @no_grad()
    def _sparse_step(
        self, group: dict[str, Any], options: Mapping[str, Any], parameter: Tensor, grad: Tensor, scale: Any
    ) -> None:
        momentum = options["momentum"]
        if group["fused"]:
            raise RuntimeError("`_fused_sgd` does not support sparse gradients")
        if options["weight_decay"]:
            raise RuntimeError("SGD: weight_decay is not compatible with sparse gradients; leave it 0")
        if not momentum:
            self._rows_step(group, options, parameter, grad, scale)
            return
        # The running sum is sparse as well, at all places that a gradient had so far.
        grad = grad.coalesce() * scale
        state = self.state[parameter]
        velocity = state.get("momentum_buffer")
        gain = 1 - options["dampening"]
        velocity = grad if velocity is None else velocity * momentum + grad * gain
        state["momentum_buffer"] = velocity = velocity.coalesce() if velocity.is_sparse else velocity
        step = velocity
        if group["nesterov"]:
            step = velocity * momentum + grad
        parameter.add_(step, alpha=-options["lr"])

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        if not momentum:
            return Update(sgd, (lr,), decay)
        gain = 1.0 if run.first else 1 - group["dampening"]  # the first gradient enters as it is
        return Update(sgd_nesterov if group["nesterov"] else sgd_momentum, (lr, momentum, gain), decay)
