"""Losses of classification: cross entropy and negative log-likelihood."""

from __future__ import annotations

from ... import Tensor, log_softmax, reshape
from ...ops.layers.loss import cross_entropy_rows, nll_loss_rows
from .reduction import chosen


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(input) at the classes `target`.

    input: scores (C,), (N, C) or (N, C, d1, …). target: class indices (), (N,) or (N, d1, …),
    or the probabilities of all classes in the shape of `input`. weight: (C,), of each class.
    reduction: "mean" divides by the weights of the targets that count (by N for
    probabilities), "sum", or "none" for a loss per target.
    """
    reduction = chosen(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.is_floating_point():
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    if input.ndim == 2:
        return cross_entropy_rows(input, target, weight, ignore_index, label_smoothing, reduction)
    scores, classes = _rows(input, target)
    out = cross_entropy_rows(scores, classes, weight, ignore_index, label_smoothing, reduction)
    return _as_targets(out, input, target) if reduction == "none" else out


def _as_targets(losses: Tensor, input: Tensor, target: Tensor) -> Tensor:
    return reshape(losses, tuple(target.shape) if input.ndim > 1 else ())


def _rows(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (N, C, d1, …) as one row (C,) per target, and the targets in that order."""
    shape = tuple(input.shape)
    if not shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    expected = () if input.ndim == 1 else (shape[0], *shape[2:])
    count, given = (shape[0] if input.ndim > 1 else 1), (target.shape[0] if target.ndim else 1)
    if count != given or (input.ndim > 1 and not target.ndim):
        raise ValueError(
            f"Expected input batch_size ({count}) to match target batch_size ({given}): input "
            f"{list(shape)}, target {list(target.shape)}"
        )
    if input.ndim == target.ndim == 1:
        target = reshape(target, ())
    if tuple(target.shape) != expected:
        hint = ": probabilities as targets are floating-point" if target.shape == input.shape else ""
        if input.ndim <= 2 and target.ndim > 1:
            hint += ". 0D or 1D target tensor expected, multi-target not supported"
        if input.ndim == 4 and target.ndim != 3:
            hint += f". only batches of spatial targets supported (3D tensors) but got targets of dimension: {target.ndim}"
        raise RuntimeError(
            f"Expected target size {list(expected)}, got {list(target.shape)} for input of size {list(shape)}{hint}"
        )
    if input.ndim == 1:
        return reshape(input, (1, -1)), reshape(target, (1,))
    if input.ndim == 2:
        return input, target
    # The scores of a class stay side by side, of which long runs are copied, if any.
    return reshape(input.transpose(0, 1), (shape[1], -1)).t(), reshape(target, (-1,))


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    if input.shape != target.shape:
        raise RuntimeError(
            f"cross_entropy(): expected target dtype to be Long or Byte, or probabilities, which must have the input's size {list(input.shape)}, got "
            f"{list(target.shape)}"
        )
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"cross_entropy(): weight tensor should be defined either for all {classes} classes or no classes but got weight "
            f"tensor of shape: {list(weight.shape)}"
        )
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    weighed = log_softmax(input, dim) * target
    if weight is not None:
        weighed = weighed * reshape(weight, (-1,) + (1,) * (input.ndim - dim - 1))
    losses = -weighed.sum(dim)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total / (losses.numel() if classes else 0) if reduction == "mean" else total


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative of `input`, log-probabilities (C,), (N, C) or (N, C, d1, …), at the classes `target`."""
    reduction = chosen(reduction, size_average, reduce)
    rows, classes = _rows(input, target)
    out = nll_loss_rows(rows, classes, weight, ignore_index, reduction)
    return _as_targets(out, input, target) if reduction == "none" else out
