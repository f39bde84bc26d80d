"""Gradients over the root of their squares: RMSprop, Adagrad and Adadelta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .layout import full_like
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
    _counts_on_device = True

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


def adagrad(F: Any, param: Any, grad: Any, total: Any, lr: Any, eps: Any) -> Any:
    """One step along the gradient over the root of the sum of all squares so far."""
    total = total + grad * grad
    return param - lr * grad / (F.sqrt(total) + eps), total


class Adagrad(Elementwise):
    """Steps along the gradient over the root of the sum of its squares, which starts at `initial_accumulator_value`.

    lr_decay: step number n (from 0) has lr / (1 + n * lr_decay). The other arguments: see `Elementwise`.
    Source: https://jmlr.org/papers/v12/duchi11a.html
    """

    _not_negative = ("lr", "eps", "weight_decay", "lr_decay", "initial_accumulator_value")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, options(locals()))
        for group in self.param_groups:  # as in PyTorch, the state is there from the beginning
            for parameter in group["params"]:
                names = self._state_names(group)
                self.state[parameter] = {name: self._new_state(parameter, name, group) for name in names}

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, "sum")

    def _new_state(self, parameter: Tensor, name: str, group: Mapping[str, Any]) -> Tensor:
        if name == "sum":
            return full_like(parameter, group["initial_accumulator_value"])
        return super()._new_state(parameter, name, group)

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        lr = group["lr"] / (1 + (run.next_step(skip) - 1) * group["lr_decay"])
        return Update(adagrad, (lr, group["eps"]), group["weight_decay"])

    def _sparse_step(
        self, group: dict[str, Any], options: Mapping[str, Any], parameter: Tensor, grad: Tensor, scale: Any
    ) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        self._rows_step(group, options, parameter, grad, scale)

    def share_memory(self) -> None:
        """Move the sums of squares into memory that processes share, as `Module.share_memory` moves parameters."""
        for state in self.state.values():
            state["sum"].share_memory_()


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

    _counts_on_device = True

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
