"""Losses that are one op for speed; the others are composed in `nn/functional.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from ..backend.registry import backend_for
from .declare import composite, op
from .explain import require_one_kind


def _adapt(
    input: Tensor,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Any, ...]:
    array = target._array if isinstance(target, Tensor) else target
    if array.ndim != 1 or input.ndim != 2 or input.shape[0] != array.shape[0]:
        raise ValueError(
            f"Expected input batch_size ({input.shape[0] if input.ndim else 0}) to match target batch_size "
            f"({array.shape[0] if array.ndim else 0}): input {list(input.shape)}, target {list(array.shape)}"
        )
    require_one_kind("cross_entropy", input._array, array)
    if array.dtype.kind not in "iu":
        raise RuntimeError(
            f"cross_entropy(): expected class indices of dtype int64 as target, got {array.dtype}"
        )
    if isinstance(array, np.ndarray):
        wrong = ((array < 0) | (array >= input.shape[1])) & (array != ignore_index)
        if wrong.any():
            raise IndexError(
                f"Target {array[wrong][0]} is out of bounds: there are {input.shape[1]} classes."
            )
    if array.dtype != np.int64:
        array = array.astype(np.int64)
    if isinstance(weight, Tensor):
        weight = weight._array
    return input, array, weight, ignore_index, label_smoothing, reduction


def _reference(
    x: Any,
    t: Any,
    weight: Any = None,
    ignore_index: int = -100,
    smoothing: float = 0.0,
    reduction: str = "mean",
) -> Any:
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    w = np.ones(x.shape[1]) if weight is None else weight
    keep = t != ignore_index
    safe = np.where(keep, t, 0)
    picked = -logp[np.arange(len(t)), safe] * w[safe]
    smooth = -(logp * w).sum(1) / x.shape[1]
    losses = np.where(keep, (1 - smoothing) * picked + smoothing * smooth, 0)
    if reduction == "none":
        return losses
    return losses.sum() / (w[safe] * keep).sum() if reduction == "mean" else losses.sum()


def _samples(rng: Any) -> Any:
    x, t = rng.standard_normal((4, 3)), np.array([0, 2, 1, 2])
    yield (x, t), {}
    yield (x, t), {"reduction": "none"}
    yield (x, t), {"reduction": "sum", "label_smoothing": 0.1}
    yield (x, t), {"weight": rng.uniform(0.5, 2, 3), "ignore_index": 1}


@op(
    grads={
        "input": lambda F, g, input, target, weight, ignore_index, label_smoothing, reduction, lse: (
            F.cross_entropy_backward(g, input, target, weight, ignore_index, label_smoothing, reduction, lse)
        )
    },
    extras=("lse",),
    adapt=_adapt,
    samples=_samples,
    reference=lambda x, t, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean": _reference(
        x, t, weight, ignore_index, label_smoothing, reduction
    ),
    method=False,
    grad_name="NllLossBackward0",
)
def cross_entropy(
    F: Any,
    input: Tensor,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """-log softmax(input (N, C)) at the classes `target` (N,), weighted, smoothed and reduced."""
    logp = F.log_softmax(input, 1)
    share = _shares(F, input, target, weight, ignore_index, label_smoothing, reduction)
    losses = -F.sum(logp * share, 1)
    return (losses if reduction == "none" else F.sum(losses)), None  # type: ignore[return-value]


@composite
def cross_entropy_backward(
    F: Any,
    g: Any,
    input: Any,
    target: Any,
    weight: Any,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
    lse: Any,
) -> Any:
    """The gradient of `cross_entropy`."""
    share = _shares(F, input, target, weight, ignore_index, label_smoothing, reduction)
    # d(-sum_j share_j logp_j)/dx = softmax(x) * sum(share) - share
    grad = F.softmax(input, 1) * F.sum(share, 1, True) - share
    return grad * (F.unsqueeze(g, 1) if reduction == "none" else g)


def _shares(
    F: Any, input: Any, target: Any, weight: Any, ignore_index: int, label_smoothing: float, reduction: str
) -> Any:
    """(N, C): how much each log-probability counts in the loss, a constant of the input."""
    classes = input.shape[1]
    keep = target != ignore_index
    columns = backend_for(target).asarray(np.arange(classes))
    onehot = ((target[:, None] == columns) * keep[:, None]).astype(np.float64)
    share = onehot * (1 - label_smoothing) + keep[:, None] * (label_smoothing / classes)
    if weight is not None:
        share = share * weight
        onehot = onehot * weight
    if reduction == "mean":
        with np.errstate(invalid="ignore"):
            share = share / onehot.sum()  # nan when every target is ignored, as in PyTorch
    return F.cast(F.asarray(share), input.dtype)
