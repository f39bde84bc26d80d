"""Adam and its relatives: AdamW, Adamax, NAdam and RAdam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


def adam(
    F: Any, param: Any, grad: Any, mean: Any, square: Any,
    lr: Any, gain1: Any, beta2: Any, gain2: Any, correction: Any, eps: Any,
) -> Any:  # fmt: skip
    """One step along the running mean of gradients, over the root of that of their squares."""
    mean = mean + gain1 * (grad - mean)
    square = beta2 * square + gain2 * grad * grad
    return param - lr * mean / (F.sqrt(square) * correction + eps), mean, square


def amsgrad(
    F: Any, param: Any, grad: Any, mean: Any, square: Any, highest: Any,
    lr: Any, gain1: Any, beta2: Any, gain2: Any, correction: Any, eps: Any,
) -> Any:  # fmt: skip
    """The same over the root of the largest mean square so far."""
    mean = mean + gain1 * (grad - mean)
    square = beta2 * square + gain2 * grad * grad
    highest = F.maximum(highest, square)
    return param - lr * mean / (F.sqrt(highest) * correction + eps), mean, square, highest


def corrections(F: Any, step: Any, lr: Any, beta1: Any, beta2: Any) -> tuple[Any, Any]:
    """The rate of a step, and what the root of the mean square is multiplied by: both means began at 0."""
    return lr / (1 - beta1**step), (1 - beta2**step) ** -0.5


class Adam(Elementwise):
    """Steps of size about `lr`, scaled by running means of the gradient and its square.

    weight_decay: added to the gradient, or with `decoupled_weight_decay` taken off the
    parameter. amsgrad: divides by the largest mean square so far. The other arguments: see `Elementwise`.
    Sources: arXiv:1412.6980, https://openreview.net/forum?id=ryQu7f-RZ (AMSGrad).
    """

    _counts_on_device = True
    _shown_as = "Adam"  # in errors; AdamW's too, as in PyTorch

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
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
        super().__init__(params, options(locals()))

    def _check_options(self, group: Mapping[str, Any]) -> None:
        betas = group["betas"]
        if isinstance(betas[0], Tensor) is not isinstance(betas[1], Tensor):
            raise ValueError("betas must be either both floats or both Tensors")
        if group.get("foreach") and not group.get("capturable"):
            for name, option in {"lr": group["lr"], "betas[0]": betas[0], "betas[1]": betas[1]}.items():
                if isinstance(option, Tensor):
                    raise ValueError(
                        f"{name} as a Tensor is not supported for capturable=False and foreach=True"
                    )
        super()._check_options(group)

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        names = (STEP, "exp_avg", "exp_avg_sq")
        return (*names, "max_exp_avg_sq") if group["amsgrad"] else names

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        lr, decay = group["lr"], group["weight_decay"]
        beta1, beta2 = group["betas"]
        rate, correction = run.numbers_of_step(corrections, skip, lr, beta1, beta2)
        numbers = (rate, 1 - beta1, beta2, 1 - beta2, correction, group["eps"])
        rule = amsgrad if group["amsgrad"] else adam
        if group["decoupled_weight_decay"]:
            return Update(rule, numbers, shrink=1 - lr * decay)
        return Update(rule, numbers, decay)


class AdamW(Adam):
    """Adam whose weight decay is taken off the parameters directly (arXiv:1711.05101)."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
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
        super().__init__(params, **options(locals()), decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # states of PyTorch before 2.7 do not say it
            group["decoupled_weight_decay"] = True


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

    _counts_on_device = True

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


_PRODUCT = "mu_product"


def nadam(
    F: Any, param: Any, grad: Any, mean: Any, square: Any,
    rate: Any, mean_rate: Any, gain1: Any, beta2: Any, gain2: Any, correction: Any, eps: Any,
) -> Any:  # fmt: skip
    """One step along the gradient and the running mean of gradients, each at a rate of its own."""
    mean = mean + gain1 * (grad - mean)
    square = beta2 * square + gain2 * grad * grad
    return param - (rate * grad + mean_rate * mean) / (F.sqrt(square) * correction + eps), mean, square


class NAdam(Elementwise):
    """Adam with Nesterov momentum; `momentum_decay` says how fast the first beta reaches its full size.

    decoupled_weight_decay: takes the decay off the parameter, as AdamW. The other arguments: see `Elementwise`.
    Source: https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ
    """

    _not_negative = ("lr", "eps", "weight_decay", "momentum_decay")
    _counts_on_device = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, _PRODUCT, "exp_avg", "exp_avg_sq")

    def _new_state(self, parameter: Tensor, name: str, group: Mapping[str, Any]) -> Tensor:
        if name == _PRODUCT:
            return self._scalar(1.0, parameter, group)
        return super()._new_state(parameter, name, group)

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        step = run.next_step(skip)
        lr, decay, slope = group["lr"], group["weight_decay"], group["momentum_decay"]
        beta1, beta2 = group["betas"]
        momentum, following = (beta1 * (1 - 0.5 * 0.96 ** (s * slope)) for s in (step, step + 1))
        product = run.multiplied(_PRODUCT, momentum)
        rate, mean_rate = lr * (1 - momentum) / (1 - product), lr * following / (1 - product * following)
        correction = (1 - beta2**step) ** -0.5
        numbers = (rate, mean_rate, 1 - beta1, beta2, 1 - beta2, correction, group["eps"])
        if group["decoupled_weight_decay"]:
            return Update(nadam, numbers, shrink=1 - lr * decay)
        return Update(nadam, numbers, decay)


def unscaled(
    F: Any, param: Any, grad: Any, mean: Any, square: Any, lr: Any, gain1: Any, beta2: Any, gain2: Any
) -> Any:
    """One step along the running mean of gradients; their squares are only noted."""
    mean = mean + gain1 * (grad - mean)
    return param - lr * mean, mean, beta2 * square + gain2 * grad * grad


def radam(
    F: Any, param: Any, grad: Any, mean: Any, square: Any,
    rate: Any, gain1: Any, beta2: Any, gain2: Any, known: Any, eps: Any,
) -> Any:  # fmt: skip
    """A step of Adam where its scale's variance is known, else of `unscaled`: for numbers that the host does not see."""
    mean = mean + gain1 * (grad - mean)
    square = beta2 * square + gain2 * grad * grad
    return param - rate * F.where(known > 0, mean / (F.sqrt(square) + eps), mean), mean, square


class RAdam(Elementwise):
    """Adam with the variance of its scale rectified: while that is unknown, plain steps along the mean.

    decoupled_weight_decay: takes the decay off the parameter, as AdamW. The other arguments: see `Elementwise`.
    Source: arXiv:1908.03265
    """

    _counts_on_device = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, "exp_avg", "exp_avg_sq")

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        step = run.next_step(skip)
        lr, decay = group["lr"], group["weight_decay"]
        beta1, beta2 = group["betas"]
        rate, left = lr / (1 - beta1**step), 1 - beta2**step
        means = (1 - beta1, beta2, 1 - beta2)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / left  # of the average that the mean square amounts to
        known, on_host = length - 5, isinstance(step, float)
        if on_host and not known > 0:
            rule, numbers = unscaled, (rate, *means)
        else:
            rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            # The root of the mean square has no correction of its own here, and eps is added to it as it is.
            if on_host:
                rule, numbers = adam, (rate * (rectified * left) ** 0.5, *means, 1.0, group["eps"])
            else:
                F = run.backend
                rate = rate * F.where(known > 0, F.sqrt(F.abs(rectified * left)), 1.0)
                rule, numbers = radam, (rate, *means, known, group["eps"])
        if group["decoupled_weight_decay"]:
            return Update(rule, numbers, shrink=1 - lr * decay)
        return Update(rule, numbers, decay)
