"""Margin losses: between scores of classes, between pairs, and between distances."""

from __future__ import annotations

from collections.abc import Callable

from ...backend.dtype import int64
from ...core.tensor import Tensor
from ...ops.creation.factories import arange, zeros_like
from ...ops.elementwise.activation import relu, softplus
from ...ops.elementwise.binary import eq, minimum, ne, where
from ...ops.elementwise.unary import clamp, sqrt
from ...ops.indexing.gather import gather, index_select
from ...ops.indexing.scatter import scatter
from ...ops.shape.shape import reshape, unsqueeze
from .activation import logsigmoid
from .distance import pairwise_distance
from .reduction import chosen, reduced


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin - target * (input1 - input2)): target 1 asks for input1 to be the larger, -1 for input2."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    losses = clamp(-target * (input1 - input2) + float(margin), min=0)
    return reduced(losses, chosen(reduction, size_average, reduce))


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The distance `input` where target is 1, max(0, margin - input) where it is -1."""
    zero = zeros_like(input)
    apart = where(ne(target, 1), clamp(margin - input, min=0), zero)
    together = where(ne(target, -1), input, zero)
    return reduced(apart + together, chosen(reduction, size_average, reduce))


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input)) for targets 1 and -1."""
    reduction = chosen(reduction, size_average, reduce)
    losses = softplus(input * -target, 1.0, float("inf"))
    if losses.shape != input.shape:
        raise RuntimeError(
            f"soft_margin_loss(): target {list(target.shape)} does not broadcast to the size of input, {list(input.shape)}"
        )
    return reduced(losses, reduction, input, target)


def _rows(name: str, input: Tensor) -> Tensor:
    """Scores (C,) or (N, C) as (N, C); one number is one class."""
    if input.ndim > 2 or (input.ndim and not input.shape[-1]):
        raise RuntimeError(
            f"{name}(): Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}; scores are (C,) or (N, C)"
        )
    return input if input.ndim == 2 else reshape(input, (1, -1))


def _require_classes(name: str, target: Tensor) -> None:
    if target.dtype is not int64:
        raise RuntimeError(
            f"{name}(): expected scalar type Long but found {target.dtype.scalar_type} for target"
        )


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over all other classes of max(0, margin - score of the target + score)**p.

    input: (N, C) or (C,); target: class indices (N,) or (); weight: (C,), of the target's class.
    """
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"multi_margin_loss(): weight must be one-dimensional, got {list(weight.shape)}")
    reduction = chosen(reduction, size_average, reduce)
    scores = _rows("multi_margin_loss", input)
    classes = reshape(target, (-1, 1))
    if classes.shape[0] != scores.shape[0] or target.ndim > 1:
        raise RuntimeError(
            f"multi_margin_loss(): The target tensor should be 1-D with size equal to the rows of input {list(input.shape)}. "
            f"Expected target size {[scores.shape[0]]}, but got {list(target.shape)}"
        )
    if weight is not None and weight.shape[0] != scores.shape[1]:
        raise RuntimeError(
            f"multi_margin_loss(): inconsistent weight size, expected {scores.shape[1]} but got {list(weight.shape)}"
        )
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            f"multi_margin_loss(): expected scalar type {input.dtype.scalar_type} but found {weight.dtype.scalar_type}, "
            "the dtype of weight"
        )
    _require_classes("multi_margin_loss", target)
    excess = relu(margin - gather(scores, 1, classes) + scores)
    if p == 2:
        excess = excess * excess
    if weight is not None:
        excess = excess * reshape(index_select(weight, 0, reshape(classes, (-1,))), (-1, 1))
    excess = scatter(excess, 1, classes, 0.0)  # the target itself does not count
    losses = excess.sum(1) / scores.shape[1]
    losses = losses if input.ndim == 2 else reshape(losses, target.shape)
    return reduced(losses, reduction, input, target, weight)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum over pairs (a target class, another class) of max(0, 1 - difference of their scores), per class.

    input: (N, C) or (C,). target: of the same shape, class indices up to the first -1 of a row.
    """
    reduction = chosen(reduction, size_average, reduce)
    scores = _rows("multilabel_margin_loss", input)
    if target.shape != input.shape:
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    _require_classes("multilabel_margin_loss", target)
    labels = _rows("multilabel_margin_loss", target)
    counts = eq((labels < 0).long().cumsum(1), 0)  # those before the first -1
    named = where(counts, labels, labels * 0)
    columns = arange(scores.shape[1], device=scores.device)
    wanted = (eq(unsqueeze(named, 2), columns) & unsqueeze(counts, 2)).sum(1) > 0
    pairs = relu(1 - unsqueeze(gather(scores, 1, named), 2) + unsqueeze(scores, 1))
    used = unsqueeze(counts, 2) & unsqueeze(~wanted, 1)
    losses = where(used, pairs, pairs * 0).sum((1, 2)) / scores.shape[1]
    losses = losses if input.ndim == 2 else reshape(losses, ())
    return reduced(losses, reduction, input, target)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the classes (last dimension) of the cross entropy of sigmoid(input) with targets 0 and 1."""
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduced(losses.sum(-1) / input.shape[-1], chosen(reduction, size_average, reduce))


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos for pairs with target 1, max(0, cos - margin) for -1; cos is that of vectors (N, D) or (D,)."""
    if target.ndim not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    smallest = 1e-12  # added to both squares, so that zero vectors have a cosine
    squares = ((input1 * input1).sum(-1) + smallest) * ((input2 * input2).sum(-1) + smallest)
    cosine = (input1 * input2).sum(-1) / sqrt(squares)
    zero = zeros_like(cosine)
    losses = where(eq(target, 1), 1 - cosine, zero) + where(
        eq(target, -1), clamp(cosine - margin, min=0), zero
    )
    return reduced(losses, chosen(reduction, size_average, reduce))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + |anchor - positive| - |anchor - negative|) with p-norms of vectors (N, D) or (D,).

    swap: the distance of positive and negative counts where it is the smaller one.
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(
        lambda x, y: pairwise_distance(x, y, p, eps),
        (anchor, positive, negative),
        margin,
        swap,
        chosen(reduction, size_average, reduce),
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance; `pairwise_distance` by default."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(
        distance_function or pairwise_distance, (anchor, positive, negative), margin, swap, chosen(reduction)
    )


def _triplet(
    distance: Callable[[Tensor, Tensor], Tensor],
    vectors: tuple[Tensor, Tensor, Tensor],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    anchor, positive, negative = vectors
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(clamp(margin + near - far, min=0), reduction)
