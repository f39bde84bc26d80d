"""Adagrad: gradients over the root of the sum of their squares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .elementwise import STEP, Elementwise, Update, full_like, options
from .flat import Run
from .optimizer import ParamsT


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
        """As in PyTorch, for training in several processes on shared parameters, which is not done here."""
        raise NotImplementedError("Adagrad.share_memory(): tensors are not shared between processes here")
