"""Connectionist temporal classification: a loss over all alignments of a sequence with its labels.

Source: Graves et al., 2006, https://www.cs.toronto.edu/~graves/icml_2006.pdf
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import Tensor, from_numpy, mean, reshape
from ...autograd.function import Function, once_differentiable
from ...backend.registry import backend_of, register_body
from ...ops.creation.data import elements_of
from .reduction import chosen, reduced

Array = np.ndarray[Any, Any]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of `targets` summed over all alignments.

    log_probs: (T, N, C) or (T, C), log-probabilities as `log_softmax` gives them (the gradient
    relies on that). targets: (N, S), or all one after the other. The lengths: tensors or
    tuples of N, or a number. reduction "mean" divides each loss by its target's length
    first. zero_infinity: sequences too short for their target count as 0.
    """
    reduction = chosen(reduction)
    batched = log_probs.ndim == 3
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(f"ctc_loss(): expected log_probs (T, N, C) or (T, C), got {list(log_probs.shape)}")
    if not log_probs.numel():
        raise RuntimeError("log_probs tensor must not be empty")
    scores = log_probs if batched else log_probs.unsqueeze(1)
    if targets.is_floating_point():
        targets = targets.long()  # as PyTorch takes them on a CPU
    steps, count, classes = scores.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    if scores.is_meta:  # whose lengths and labels need not be known
        losses = scores.sum((0, 2))
        return reduced(losses if batched else reshape(losses, ()), reduction)
    times, sizes = (
        _lengths(input_lengths, count, "input_lengths"),
        _lengths(target_lengths, count, "target_lengths"),
    )
    if times.max(initial=0) > steps:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value {times.max()}"
        )
    labels = _labels(Tensor.numpy(targets, force=True), sizes, batched)
    losses = _CTC.apply(scores, labels, times, sizes, blank, zero_infinity)
    if reduction == "mean":
        return mean(losses / from_numpy(np.maximum(sizes, 1)).to(losses.device, losses.dtype))
    if reduction == "none" and not batched:
        return reshape(losses, ())
    return reduced(losses, reduction)


def _lengths(lengths: Any, count: int, name: str) -> Array:
    array = elements_of(lengths)
    if array.dtype.kind not in "iu":
        raise RuntimeError(f"{name} must be integral")
    array = array.reshape(-1).astype(np.int64)
    if array.min(initial=0) < 0:
        raise RuntimeError(f"Expected {name} to have value at least 0, but got value {array.min()}")
    if len(array) != count:
        raise RuntimeError(f"{name} must be of size batch_size: expected {count}, got {len(array)}")
    return array


def _labels(targets: Array, sizes: Array, batched: bool) -> Array:
    """(N, longest): the targets of each sequence; what lies beyond its length does not matter."""
    longest = int(sizes.max(initial=0))
    if targets.ndim == 2 or not batched:
        if batched and len(targets) != len(sizes):
            raise RuntimeError(
                f"Expected targets of {len(sizes)} sequences (N, S), but got size {list(targets.shape)}"
            )
        rows = targets.reshape(len(sizes), -1)
        if rows.shape[1] < longest:
            raise RuntimeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size {rows.shape[1]}"
            )
        return rows[:, :longest]
    if targets.size != sizes.sum():
        raise RuntimeError(f"target_lengths sum to {sizes.sum()}, but there are {targets.size} targets")
    table = np.zeros((len(sizes), longest), targets.dtype)
    table[np.arange(longest) < sizes[:, None]] = targets
    return table


class _CTC(Function):
    """The loss of each sequence, and its gradient from the forward and backward variables of Graves et al., (7)-(16)."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, labels: Array, times: Array, sizes: Array, blank: int, zero_infinity: bool
    ) -> Tensor:
        log_probs = Tensor.numpy(scores, force=True).astype(np.float64)
        losses, gradient = backend_of("cpu").ctc_alignments(log_probs, labels, times, sizes, blank)
        impossible = np.isinf(losses)
        within = np.arange(len(gradient))[:, None] < times  # what lies beyond has no part in the loss
        gradient[impossible & within] = 0.0 if zero_infinity else np.nan
        if zero_infinity:
            losses[impossible] = 0.0
        ctx.save_for_backward(from_numpy(gradient).to(scores.device, scores.dtype))
        return from_numpy(losses).to(scores.device, scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * reshape(grad, (1, -1, 1)), None, None, None, None, None


def _alignments(
    F: Any, log_probs: Array, labels: Array, times: Array, sizes: Array, blank: int
) -> tuple[Array, Array]:
    """(losses (N,), gradients (T, N, C) under the softmax that `log_probs` came from)."""
    steps, count, _ = log_probs.shape
    extended = np.full((count, 2 * labels.shape[1] + 1), blank)  # a blank before, between and after labels
    extended[:, 1::2] = labels
    places = np.arange(extended.shape[1])
    valid = places <= 2 * sizes[:, None]
    skips = np.zeros(extended.shape, bool)  # whether the place before may be left out
    skips[:, 2:] = extended[:, 2:] != extended[:, :-2]
    emitted = np.take_along_axis(log_probs, np.broadcast_to(extended, (steps, *extended.shape)), 2)
    emitted = np.where(valid, emitted, -np.inf)
    start = np.where(places < 2, 0.0, -np.inf)
    last = 2 * sizes[:, None]
    end = np.where((places == last) | (places == last - 1), 0.0, -np.inf)

    alpha, beta = np.full((2, *emitted.shape), -np.inf)
    state = np.broadcast_to(start, extended.shape)
    for t in range(steps):
        alpha[t] = emitted[t] + (state if t == 0 else _advance(state, skips))
        state = alpha[t]
    # The same backwards; each sequence starts at its own end.
    skips_back = np.zeros_like(skips)
    skips_back[:, :-2] = skips[:, 2:]
    state = np.full(extended.shape, -np.inf)
    for t in range(steps - 1, -1, -1):
        ahead = _advance(state[:, ::-1], skips_back[:, ::-1])[:, ::-1]
        beta[t] = emitted[t] + np.where((times == t + 1)[:, None], end, ahead)
        state = beta[t]
    active = np.arange(steps)[:, None] < times
    final = alpha[np.maximum(times - 1, 0), np.arange(count)] + end
    final[times == 0] = np.where(sizes[times == 0, None] == 0, end[times == 0], -np.inf)
    losses = -np.logaddexp.reduce(final, axis=1)
    through = alpha + beta  # counts what is emitted at t twice
    passed = np.isfinite(through) & np.isfinite(losses)[:, None]
    share = np.exp(np.where(passed, through - np.where(passed, emitted, 0.0) + losses[:, None], -np.inf))
    gradient = np.exp(log_probs)
    rows = np.arange(steps * count).reshape(steps, count, 1)
    np.subtract.at(gradient.reshape(steps * count, -1), (rows, extended), share)
    gradient[~active] = 0.0
    return losses, gradient


def _advance(state: Array, skips: Array) -> Array:
    """log of the sum over the places from which each place is reached: itself, the one before, and the one before that."""
    before = np.full_like(state, -np.inf)
    before[:, 1:] = state[:, :-1]
    skipped = np.full_like(state, -np.inf)
    skipped[:, 2:] = state[:, :-2]
    return np.logaddexp(np.logaddexp(state, before), np.where(skips, skipped, -np.inf))


register_body("ctc_alignments", _alignments)
