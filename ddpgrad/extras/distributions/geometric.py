"""The geometric distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, finfo, floor, log, log1p, no_grad
from . import constraints
from .binary import BinaryDistribution
from .utils import binary_entropy, broadcast_all


class Geometric(BinaryDistribution):
    """The number of failures before the first success of probability `probs`, or log-odds `logits`."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._keep(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(f"Geometric needs probs > 0, got:\n{self.probs}")

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return self.probs.new_zeros(self.probs.shape)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            u = self.probs.new_empty(shape).uniform_(finfo(self.probs.dtype).tiny, 1)
            return floor(log(u) / log1p(-self.probs.expand(shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)  # 0 failures are certain: 0 * log(0) is 0
        return value * log1p(-probs) + log(self.probs)

    def entropy(self) -> Tensor:
        return binary_entropy(self.logits, self.probs) / self.probs
