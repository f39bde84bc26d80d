"""Muon: momentum whose matrix is made nearly orthogonal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import Tensor, addmm, bfloat16, no_grad, zeros_like
from .elementwise import options
from .optimizer import Closure, Optimizer, ParamsT, evaluated

_ADJUSTMENTS = {
    None: lambda rows, columns: max(1.0, rows / columns) ** 0.5,
    "original": lambda rows, columns: max(1.0, rows / columns) ** 0.5,
    "match_rms_adamw": lambda rows, columns: 0.2 * max(rows, columns) ** 0.5,
}


class Muon(Optimizer):
    """Steps along the momentum of the gradient with all its singular values brought to about 1; for matrices only.

    ns_coefficients, ns_steps: of the Newton-Schulz iteration, which runs in bfloat16. eps: the least norm
    that a matrix is divided by first. adjust_lr_fn: how the step follows the shape (rows, columns):
    "original", sqrt(max(1, rows / columns)); "match_rms_adamw", 0.2 sqrt(max(rows, columns)).
    Sources: https://kellerjordan.github.io/posts/muon, arXiv:2502.16982
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, options(locals()))

    def _check_options(self, group: Mapping[str, Any]) -> None:
        for option, name in (
            ("lr", "Learning rate"),
            ("momentum", "momentum"),
            ("weight_decay", "weight decay"),
        ):
            if not group[option] >= 0:
                raise ValueError(f"{name} should be >= 0 but is: {group[option]}")
        if group["adjust_lr_fn"] not in _ADJUSTMENTS:
            raise ValueError(f"Adjust learning rate function {group['adjust_lr_fn']} is not supported")
        if len(group["ns_coefficients"]) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        if group["ns_steps"] >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        for parameter in group["params"]:
            if parameter.ndim != 2:
                raise ValueError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: {parameter.shape}"
                )

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters from their gradients; the result of `closure`, called first, if given."""
        loss = evaluated(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, grad: Tensor, group: Mapping[str, Any]) -> None:
        self._refuse_sparse(grad)
        if parameter.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = zeros_like(grad)
        mean, lr = state["momentum_buffer"], float(group["lr"])
        mean.lerp_(grad, 1 - group["momentum"])
        direction = grad.lerp(mean, group["momentum"]) if group["nesterov"] else mean
        direction = _orthogonalized(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
        parameter.mul_(1 - lr * group["weight_decay"])
        rows, columns = parameter.shape
        factor = _ADJUSTMENTS[group["adjust_lr_fn"]](rows, columns)
        parameter.sub_(direction.to(parameter.dtype), alpha=lr * factor)


def _orthogonalized(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """A matrix with the singular vectors of `matrix` and singular values near 1, in bfloat16.

    Each step applies the odd polynomial a x + b x^3 + c x^5 to the singular values.
    """
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.mT if tall else matrix).to(bfloat16)
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
