"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ...core.tensor import Tensor
from . import constraints
from .gamma import Gamma
from .utils import broadcast_all


class Chi2(Gamma):
    """The chi-squared distribution with `df` degrees of freedom: Gamma(df / 2, 1 / 2)."""

    arg_constraints: ClassVar = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.concentration, new.rate = self.concentration.expand(batch_shape), self.rate.expand(batch_shape)
        return new

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2
