"""SparseAdam: Adam on the rows that a sparse gradient names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .adam import adam
from .elementwise import STEP, Elementwise, Update, options
from .flat import Run
from .optimizer import ParamsT


class SparseAdam(Elementwise):
    """Adam for sparse gradients: of parameters and running means, only the elements that have a gradient change.

    The parameters themselves are dense. The arguments: see `Adam`.
    Source: https://pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))
        for kind, refused, text in (
            ("Sparse", lambda p: p.is_sparse, "requires dense parameter tensors"),
            ("Complex", Tensor.is_complex, "does not support complex parameters"),
        ):
            places = [
                [number, place]
                for number, group in enumerate(self.param_groups)
                for place, parameter in enumerate(group["params"])
                if refused(parameter)
            ]
            if places:
                raise ValueError(f"{kind} params at indices {places}: SparseAdam {text}")

    def _check_options(self, group: Mapping[str, Any]) -> None:
        if not group["lr"] > 0:
            raise ValueError(f"Invalid learning rate: {group['lr']}")
        if not group["eps"] > 0:
            raise ValueError(f"Invalid epsilon value: {group['eps']}")
        super()._check_options(group)

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return (STEP, "exp_avg", "exp_avg_sq")

    _sparse_step = Elementwise._rows_step

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        if run.pieces:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        step, (beta1, beta2) = run.next_step(skip), group["betas"]
        rate = group["lr"] * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        return Update(adam, (rate, 1 - beta1, beta2, 1 - beta2, 1.0, group["eps"]))
