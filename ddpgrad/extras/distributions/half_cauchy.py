"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from ...core.tensor import Tensor
from .cauchy import Cauchy
from .folded import Folded
from .utils import same_as


class HalfCauchy(Folded):
    """The absolute values of Cauchy(0, scale)."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        """Infinite: the integral does not converge."""
        return self.scale.new_full(self._batch_shape, math.inf)

    variance: Any = same_as("base_dist.variance")
