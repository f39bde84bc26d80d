"""Losses that are one op for speed; the others are composed in `nn/functional/loss.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend.registry import backend_for
from ...core.taping import taped
from ...core.tensor import Tensor
from ..dispatch.declare import composite, op
from ..dispatch.explain import require_one_kind
from ..dispatch.samples import calls


def _adapt(
    input: Tensor,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Any, ...]:
    classes = _classes("cross_entropy", input, target)
    return (
        input,
        classes,
        _weight_of("cross_entropy", input, weight),
        ignore_index,
        label_smoothing,
        reduction,
    )


def _weight_of(name: str, input: Tensor, weight: Any) -> Any:
    """The array of the weights of the classes of scores (N, C); `RuntimeError` unless there is one for each."""
    array = weight._array if isinstance(weight, Tensor) else weight
    if array is not None and array.shape != input._array.shape[1:]:
        raise RuntimeError(
            f"{name}(): weight tensor should be defined either for all {input.shape[1]} classes or no classes but got "
            f"weight tensor of shape: {list(array.shape)}"
        )
    if isinstance(weight, Tensor) and weight.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}(): expected scalar type {input.dtype.name} but found {weight.dtype.name}, the dtype of weight"
        )
    return array


def _classes(name: str, input: Tensor, target: Any) -> Any:
    """The array of the targets (N,) of scores (N, C), as int64; `ValueError` for other shapes."""
    array = target._array if isinstance(target, Tensor) else target
    own = input._array.shape
    if array.ndim > 1 and len(own) == 2 and array.shape[0] == own[0]:
        raise RuntimeError(
            f"0D or 1D target tensor expected, multi-target not supported: got {list(array.shape)}. Expected floating "
            "point type for target with class probabilities"
        )
    if array.ndim != 1 or len(own) != 2 or own[0] != array.shape[0]:
        raise ValueError(
            f"Expected input batch_size ({input.shape[0] if input.ndim else 0}) to match target batch_size "
            f"({array.shape[0] if array.ndim else 0}): input {list(input.shape)}, target {list(array.shape)}"
        )
    require_one_kind(name, input._array, array)
    if array.dtype.char not in "lB":
        raise RuntimeError(
            f"{name}(): expected target dtype to be Long or Byte, class indices of int64 or uint8, but got {array.dtype}"
        )
    return array if array.dtype.char == "l" else array.astype(np.int64)


def _require_classes(target: Any, classes: int, ignore_index: int) -> None:
    """`IndexError` for a target on the host that is no class; what is on a GPU is not waited for."""
    if isinstance(target, np.ndarray):
        wrong = ((target < 0) | (target >= classes)) & (target != ignore_index)
        if wrong.any():
            raise IndexError(f"Target {target[wrong][0]} is out of bounds: there are {classes} classes.")


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
        "input": lambda F, g, input, target, weight, ignore_index, label_smoothing, reduction, sums: (
            F.cross_entropy_backward(g, input, target, weight, ignore_index, label_smoothing, reduction, sums)
        )
    },
    extras=("sums",),
    adapt=_adapt,
    samples=_samples,
    reference=lambda x, t, weight=None, ignore_index=-100, label_smoothing=0.0, reduction="mean": _reference(
        x, t, weight, ignore_index, label_smoothing, reduction
    ),
    method=False,
    grad_name="NllLossBackward0",
)
def cross_entropy_rows(
    F: Any,
    input: Tensor,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """-log softmax(input (N, C)) at the classes `target` (N,), weighted, smoothed and reduced."""
    _require_classes(target, input.shape[1], ignore_index)
    logp = F.log_softmax(input, 1)
    share = _shares(F, input, target, weight, ignore_index, label_smoothing, reduction)
    # What does not count is 0 even where its probability is: a score of minus infinity hides a class.
    losses = -F.sum(F.where(share == 0, F.full_like(logp, 0), logp * share), 1)
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
    sums: Any,
) -> Any:
    """The gradient of `cross_entropy_rows`."""
    share = _shares(F, input, target, weight, ignore_index, label_smoothing, reduction)
    # d(-sum_j share_j logp_j)/dx = softmax(x) * sum(share) - share
    grad = F.softmax(input, 1) * F.sum(share, 1, True) - share
    if reduction == "mean":  # where all are ignored the shares are nan, the gradient is 0
        grad = F.where(F.asarray((target != ignore_index)[:, None]), grad, F.full_like(grad, 0))
    return grad * (F.unsqueeze(g, 1) if reduction == "none" else g)


@taped
def _shares_of(
    target: Any, weight: Any, classes: int, ignore_index: int, label_smoothing: float, reduction: str
) -> Any:
    """`_shares` in float64."""
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
    return share


def _shares(
    F: Any, input: Any, target: Any, weight: Any, ignore_index: int, label_smoothing: float, reduction: str
) -> Any:
    """(N, C): how much each log-probability counts in the loss, a constant of the input."""
    share = _shares_of(target, weight, input.shape[1], ignore_index, label_smoothing, reduction)
    return F.cast(F.asarray(share), input.dtype)


def _adapt_nll(
    input: Tensor, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> tuple[Any, ...]:
    classes = _classes("nll_loss", input, target)
    return input, classes, _weight_of("nll_loss", input, weight), ignore_index, reduction


def _np_nll(x: Any, t: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    w = (np.ones(x.shape[1]) if weight is None else weight)[t] * (t != ignore_index)
    losses = -x[np.arange(len(t)), t] * w
    return losses if reduction == "none" else losses.sum() / (w.sum() if reduction == "mean" else 1)


@op(
    grads={
        "input": lambda F, g, input, reduction, places, share, total: F.nll_loss_backward(
            g, input, reduction, places, share, total
        )
    },
    extras=("places", "share", "total"),
    adapt=_adapt_nll,
    samples=lambda rng: [args for args in _samples(rng) if "label_smoothing" not in args[1]],
    reference=_np_nll,
    method=False,
    grad_name="NllLossBackward0",
)
def nll_loss_rows(
    F: Any, input: Tensor, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """-input (N, C) at the classes `target` (N,), weighted and reduced."""
    _require_classes(target, input.shape[1], ignore_index)
    keep = target != ignore_index
    places = F.where(keep, target, 0)
    share = F.cast(keep if weight is None else weight[places] * keep, input.dtype)
    # Ignored places hold 0 even where the input is infinite there.
    picked = F.where(keep, F.gather(input, 1, places[:, None])[:, 0], 0)
    losses = -picked * share
    if reduction == "none":
        return losses, places, share, None  # type: ignore[return-value]
    total = F.sum(share) if reduction == "mean" else None
    loss = F.sum(losses)
    return (loss if total is None else loss / total), places, share, total  # type: ignore[return-value]


@composite
def nll_loss_backward(F: Any, g: Any, input: Any, reduction: str, places: Any, share: Any, total: Any) -> Any:
    """The gradient of `nll_loss_rows`."""
    values = -share * (g / total if reduction == "mean" else g)
    values = F.where(share == 0, F.full_like(values, 0), values)  # where all are ignored the total is 0
    zeros = F.full_like(input, 0)
    return F.scatter_src(zeros, 1, F.unsqueeze(places, 1), F.unsqueeze(F.cast(values, input.dtype), 1))


@op(
    grads={"input": lambda F, g, input, delta, scale: F.huber_backward(g, input, delta, scale)},
    samples=calls((0.7,), (1.0, 0.5)),
    reference=lambda x, d, s=1.0: s * np.where(np.abs(x) < d, x * x / 2, d * (np.abs(x) - d / 2)),
    method=False,
    grad_name="HuberLossBackward0",
)
def huber(F: Any, input: Tensor, delta: float, scale: float = 1.0) -> Tensor:
    """`scale` times input**2 / 2 within [-delta, delta], and times delta * (|input| - delta / 2) beyond."""
    size = F.abs(input)
    inner = F.minimum(size, delta)
    return inner * (size - 0.5 * inner) * scale


@composite
def huber_backward(F: Any, g: Any, input: Any, delta: float, scale: float) -> Any:
    """The gradient of `huber`."""
    return F.clamp(input, -delta, delta) * (g * scale)
