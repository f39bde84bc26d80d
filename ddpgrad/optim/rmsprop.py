"""RMSprop: gradients over the root of their mean square."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


def rmsprop(F: Any, param: Any, grad: Any, square: Any, lr: Any, alpha: Any, gain: Any, eps: Any) -> Any:
    """One step along the gradient over the root of the mean square."""
    square = alpha * square + gain * grad * grad
    return param - lr * grad / (F.sqrt(square) + eps), square


def rmsprop_momentum(
    F: Any, param: Any, grad: Any, square: Any, velocity: Any,
    lr: Any, alpha: Any, gain: Any, eps: Any, momentum: Any,
) -> Any:  # fmt: skip
    """The same with momentum."""
    square = alpha * square + gain * grad * grad
    velocity = momentum * velocity + grad / (F.sqrt(square) + eps)
    return param - lr * velocity, square, velocity


def rmsprop_centered(
    F: Any, param: Any, grad: Any, square: Any, mean: Any, lr: Any, alpha: Any, gain: Any, eps: Any
) -> Any:
    """One step along the gradient over its standard deviation."""
    square = alpha * square + gain * grad * grad
    mean = mean + gain * (grad - mean)
    return param - lr * grad / (F.sqrt(square - mean * mean) + eps), square, mean


def rmsprop_centered_momentum(
    F: Any, param: Any, grad: Any, square: Any, velocity: Any, mean: Any,
    lr: Any, alpha: Any, gain: Any, eps: Any, momentum: Any,
) -> Any:  # fmt: skip
    """The same with momentum."""
    square = alpha * square + gain * grad * grad
    mean = mean + gain * (grad - mean)
    velocity = momentum * velocity + grad / (F.sqrt(square - mean * mean) + eps)
    return param - lr * velocity, square, velocity, mean


class RMSprop(Elementwise):
    """Steps along the gradient over the root of the running mean of its square (of its variance if `centered`).

    alpha: how much of the mean stays. The other arguments: see `Elementwise`.
    Sources: https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf, arXiv:1308.0850 (centered)
    """

    _not_negative = ("lr", "eps", "weight_decay", "momentum", "alpha")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        momentum = ("momentum_buffer",) if group["momentum"] > 0 else ()
        mean = ("grad_avg",) if group["centered"] else ()
        return (STEP, "square_avg", *momentum, *mean)

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        run.next_step(skip)
        alpha, momentum = group["alpha"], group["momentum"]
        numbers = (group["lr"], alpha, 1 - alpha, group["eps"])
        if momentum > 0:
            rule = rmsprop_centered_momentum if group["centered"] else rmsprop_momentum
            return Update(rule, (*numbers, momentum), group["weight_decay"])
        return Update(rmsprop_centered if group["centered"] else rmsprop, numbers, group["weight_decay"])
