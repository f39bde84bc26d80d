"""The base of distributions of one probability, given as such or as log-odds."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .distribution import Distribution
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits, same_as


class BinaryDistribution(Distribution):
    """Keeps `probs` or `logits`, whichever is given, and makes the other when it is asked for."""

    def _keep(self, probs: Any, logits: Any, *others: Any) -> tuple[Tensor, ...]:
        """Set the one that is given; `others` come back in the shape that all have together, and in its type."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        *beside, param = broadcast_all(*others, logits if probs is None else probs)
        setattr(self, "logits" if probs is None else "probs", param)
        return tuple(other.type_as(param) for other in beside)

    @property
    def _param(self) -> Tensor:
        return vars(self)["probs" if "probs" in vars(self) else "logits"]  # one that is there already

    param_shape = same_as("_param.shape")

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, is_binary=True)
