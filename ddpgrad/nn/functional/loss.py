"""Losses between a prediction and a target of the same shape."""

from __future__ import annotations

import math
from typing import cast

from ... import Tensor, broadcast_tensors, clone, exp, full_like, log, lt, no_grad, square, where, xlogy
from ...core.errors import warn_program
from ...ops.elementwise.activation import softplus
from ...ops.layers.bernoulli_loss import bernoulli_loss
from ...ops.layers.loss import huber
from .reduction import KNOWN, chosen, reduced


def _broadcast(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    """Both in one shape, so that of a single element, too, the type counts; different shapes are warned of."""
    if input.shape == target.shape:
        return input, target
    warn_program(
        f"{name}(): the target size ({target.shape}) is different to the input size ({input.shape}). This will "
        "likely lead to incorrect results due to broadcasting. Please ensure they have the same size."
    )
    return broadcast_tensors(input, target)


def _distance(input: Tensor, target: Tensor) -> Tensor:
    """input - target, one of which may be of truth values."""
    if input.dtype.category == 0:
        input = input.to(target.dtype)
    return input - (target.to(input.dtype) if target.dtype.category == 0 else target)


def _real(name: str, distance: Tensor) -> Tensor:
    if distance.dtype.category != 2:
        raise NotImplementedError(f"{name}(): not implemented for '{distance.dtype.scalar_type}'")
    return distance


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)**2, times `weight`; reduction "mean" divides by the sum of the weights."""
    input, target = _broadcast("mse_loss", input, target)
    reduction = chosen(reduction, size_average, reduce)
    losses = square(_real("mse_loss", _distance(input, target)))
    if weight is None:
        return reduced(losses, reduction, input, target)
    return _weighed("mse_loss", losses, weight, reduction)


def _weighed(name: str, losses: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """The losses reduced with weights; their mean is over the weights, not over the elements."""
    _require_weights(name, losses, weight)
    if reduction == "mean":
        return (losses * weight).sum() / weight.sum()
    return reduced(losses * weight, reduction)


def _require_weights(name: str, losses: Tensor, weight: Tensor) -> None:
    if weight.shape != losses.shape:
        raise ValueError(
            f"{name}(): Weights and input must have the same size, got {list(weight.shape)} and {list(losses.shape)}"
        )


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target|, times `weight`; reduction "mean" divides by the sum of the weights."""
    input, target = _broadcast("l1_loss", input, target)
    losses, reduction = (input - target).abs(), chosen(reduction, size_average, reduce)
    return reduced(losses, reduction) if weight is None else _weighed("l1_loss", losses, weight, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """|d| - beta/2 where |d| = |input - target| is at least beta, d**2 / (2 beta) below (arXiv:1504.08083)."""
    input, target = _broadcast("smooth_l1_loss", input, target)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}")
    distance = _real("smooth_l1_loss", _distance(input, target))
    reduction = chosen(reduction, size_average, reduce)
    if beta == 0:
        return reduced(distance.abs(), reduction)
    return reduced(huber(distance, beta, 1 / beta), reduction, input, target)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """delta * (|d| - delta/2) where |d| = |input - target| is at least delta, d**2 / 2 below; times `weight`."""
    input, target = _broadcast("huber_loss", input, target)
    if delta <= 0:
        raise RuntimeError(f"huber_loss does not support non-positive values for delta, got {delta}")
    losses = huber(_real("huber_loss", _distance(input, target)), delta)
    if weight is not None:
        _require_weights("huber_loss", losses, weight)
        losses = losses * weight
    return reduced(losses, chosen(reduction), input, target)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-target log(input) - (1 - target) log(1 - input) for probabilities; logarithms stop at -100."""
    _same_size("binary_cross_entropy", input, target)
    losses = bernoulli_loss(input, target)
    if weight is not None:
        losses = _in_size_of(input, "binary_cross_entropy", "weight", losses * weight)
    return reduced(losses, chosen(reduction, size_average, reduce), input, target, weight)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(input), without overflow; `pos_weight` counts the positive targets more."""
    name = "binary_cross_entropy_with_logits"
    _same_size(name, input, target)
    _require_numbers(name, target)
    soft = softplus(-input, 1.0, float("inf"))
    if pos_weight is not None:
        soft = _in_size_of(input, name, "pos_weight", soft * ((pos_weight - 1) * target + 1))
    losses = (1 - target) * input + soft
    if weight is not None:
        losses = _in_size_of(input, name, "weight", losses * weight)
    return reduced(losses, chosen(reduction, size_average, reduce), input, target, weight, pos_weight)


def _same_size(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise ValueError(
            f"{name}(): Using a target size ({target.shape}) that is different to the input size ({input.shape}): target size "
            f"({target.shape}) must be the same as input size ({input.shape})"
        )


def _require_numbers(name: str, target: Tensor) -> None:
    if target.dtype.category < 2:
        raise NotImplementedError(
            f"{name}(): not implemented for a target of {target.dtype.name}; use target.float()"
        )


def _in_size_of(input: Tensor, name: str, what: str, losses: Tensor) -> Tensor:
    """`losses`, which a factor `what` must not have broadcast beyond the size of `input`."""
    if losses.shape != input.shape:
        raise RuntimeError(f"{name}(): {what} does not broadcast to the size of input, {list(input.shape)}")
    return losses


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log(target) - input) for log-probabilities `input`; log_target: `target` is in logarithms too.

    reduction: also "batchmean", the sum divided by the first dimension, which is the divergence itself.
    """
    _require_numbers("kl_div", target)
    if log_target:
        losses = exp(target) * (target - input)
    else:
        losses = xlogy(target, target) - target * input
    if reduction == "batchmean":
        return losses.sum() / (input.shape[0] if input.ndim else 1)
    if reduction not in KNOWN:
        raise ValueError(
            f"{reduction!r} is not a valid value for reduction; expected batchmean, {', '.join(KNOWN)}"
        )
    reduction = chosen(reduction, size_average, reduce)
    if reduction == "mean":
        warn_program(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides only "
            "by the batch size, and aligns with the KL div math definition. 'mean' will be changed to behave the same as "
            "'batchmean' in the next major release."
        )
    return reduced(losses, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of counts `target` under Poisson distributions of mean exp(input).

    log_input: False when `input` is the mean itself, to which `eps` is added inside the logarithm;
    full: add Stirling's approximation of log(target!) where target is above 1.
    """
    losses = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        large = target > 1
        safe = where(large, target, target * 0 + 1)
        stirling = target * log(safe) - target + 0.5 * log(2 * math.pi * safe)
        losses = losses + where(large, stirling, target * 0)
    return reduced(losses, chosen(reduction, size_average, reduce))


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)**2 / var) / 2, where variances below `eps` count as `eps`.

    var: a number, of input's shape, or of that shape with a last dimension of 1 or without one;
    full: add the constant log(2 pi) / 2.
    """
    chosen(reduction)
    spread = var if isinstance(var, Tensor) else cast(Tensor, full_like(input, var))
    if spread.shape != input.shape and spread.shape == input.shape[:-1]:
        spread = spread.unsqueeze(-1)
    fits = spread.ndim == input.ndim
    if not fits or any(v not in (1, n) for v, n in zip(spread.shape, input.shape, strict=True)):
        raise ValueError(f"var is of incorrect size: {list(spread.shape)} for input {list(input.shape)}")
    if spread.is_cpu and bool(lt(spread, 0).any()):
        raise ValueError("var has negative entry/entries")
    spread = clone(spread)
    with no_grad():  # the gradient of what is raised to eps passes as if it were not
        spread.clamp_(min=eps)
    distance = _distance(input, target)
    losses = 0.5 * (log(spread) + distance * distance / spread)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, chosen(reduction))
