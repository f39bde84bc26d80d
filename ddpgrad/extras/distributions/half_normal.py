"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from ...core.tensor import Tensor
from .folded import Folded
from .normal import Normal


class HalfNormal(Folded):
    """The absolute values of Normal(0, scale)."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)
