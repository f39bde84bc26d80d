"""Transforms between real vectors and the probability simplex."""

from __future__ import annotations

from typing import Any

from .... import Tensor, arange, clamp, finfo, log, sigmoid
from ....nn.functional import logsigmoid, pad, softmax
from .. import constraints
from .base import Transform


class SoftmaxTransform(Transform):
    """Probabilities from logarithms along the last dimension; the inverse is one of many."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)


class StickBreakingTransform(Transform):
    """K numbers (..., K) to K + 1 probabilities, each a share of what the ones before left: the sigmoid of number k, less log(K - k), is the share that is taken.

    Zeros become equal probabilities.
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        limits = finfo(x.dtype)
        taken = clamp(sigmoid(x - _log_left(x, x.shape[-1])), min=limits.tiny, max=1 - limits.eps)
        left = (1 - taken).cumprod(-1)
        return pad(taken, [0, 1], value=1.0) * pad(left, [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        left = clamp(1 - parts.cumsum(-1), min=finfo(y.dtype).tiny)
        return log(parts) - log(left) + _log_left(y, parts.shape[-1])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - _log_left(x, x.shape[-1])
        return (-x + logsigmoid(x) + log(y[..., :-1])).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        if not shape:
            raise ValueError("Too few dimensions on input")
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        if not shape:
            raise ValueError("Too few dimensions on input")
        return (*shape[:-1], shape[-1] - 1)


def _log_left(like: Tensor, count: int) -> Tensor:
    """The logarithms of count, count - 1, …, 1."""
    return log(arange(count, 0, -1, dtype=like.dtype, device=like.device))
