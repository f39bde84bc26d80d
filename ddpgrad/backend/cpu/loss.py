"""Compiled losses for the CPU: Huber's, and cross entropy over class indices without an array of probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .element_loops import of_elements
from .numbers import where
from .threads import WORTH_SHARING, in_parts, threads
from .vectormath import compiled_for, exp_of_negative, from_ordered, kernel, less_both, to_ordered


def cross_entropy_rows(
    input: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> tuple[np.ndarray, np.ndarray]:
    """-log softmax(input)[target], input (N, C), target int64 (N,): (loss, sums (2, N)).

    `sums` are of each row the largest element and log(sum(exp(x - that))): added up they would lose digits.

    The loss has shape () for reduction "mean" (over the targets that are not `ignore_index`; NaN
    when there is none) and "sum", (N,) for "none". With `label_smoothing` e the wanted
    distribution is (1 - e) at the target plus e / C everywhere. Raises IndexError for a target
    outside of [0, C). `NotImplemented` with class weights.
    """
    if weight is not None or not _handles(input, target):
        return NotImplemented
    losses = np.empty(len(target), input.dtype)
    sums = np.empty((2, len(target)), input.dtype)
    rows = np.ascontiguousarray(input), np.ascontiguousarray(target), losses, sums
    bad, total, count = _for_rows(_cross_entropy, *rows, ignore_index, label_smoothing)
    if bad >= 0:
        raise _no_class(target[bad], input)
    if reduction == "none":
        return losses, sums
    if reduction == "mean":
        total = total / count if count else math.nan
    return np.array(total, input.dtype), sums


def cross_entropy_backward(
    g: np.ndarray,
    input: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
    sums: np.ndarray,
) -> np.ndarray:
    """The gradient of `cross_entropy_rows` for input (N, C); g has the shape of the loss."""
    if weight is not None or not _handles(input, target) or not compiled_for(g, input, sums):
        return NotImplemented
    scales = np.empty(len(target), input.dtype)
    if reduction == "mean":
        kept = np.count_nonzero(target != ignore_index)
        scales.fill(g.item() / kept if kept else 0.0)
    else:
        scales[...] = g
    out = np.empty(input.shape, input.dtype)
    rows = np.ascontiguousarray(input), np.ascontiguousarray(target), scales, np.ascontiguousarray(sums), out
    bad, _, _ = _for_rows(_cross_entropy_backward, *rows, ignore_index, label_smoothing)
    if bad >= 0:  # changed since forward, by `.data` or NumPy
        raise _no_class(target[bad], input)
    return out


def nll_loss_rows(
    input: np.ndarray, target: np.ndarray, weight: np.ndarray | None, ignore_index: int, reduction: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """-input[target], input (N, C), target int64 (N,): (loss, places, share, total) as `ops/layers/loss.py` has them."""
    if not _handles(input, target) or (weight is not None and not compiled_for(input, weight)):
        return NotImplemented
    losses, share = (np.empty(len(target), input.dtype) for _ in range(2))
    places = np.empty_like(target)
    weight = np.empty(0, input.dtype) if weight is None else np.ascontiguousarray(weight)
    bad, loss, total = _nll(input, target, weight, ignore_index, losses, share, places)
    if bad >= 0:
        raise _no_class(target[bad], input)
    if reduction == "none":
        return losses, places, share, None
    if reduction == "sum":
        return np.array(loss, input.dtype), places, share, None
    return (
        np.array(loss / total if total else math.nan, input.dtype),
        places,
        share,
        np.array(total, input.dtype),
    )


def nll_loss_backward(
    g: np.ndarray,
    input: np.ndarray,
    reduction: str,
    places: np.ndarray,
    share: np.ndarray,
    total: np.ndarray | None,
) -> np.ndarray:
    """The gradient of `nll_loss_rows` for input (N, C); g has the shape of the loss."""
    if not _handles(input, places) or not compiled_for(g, input, share):
        return NotImplemented
    out = np.zeros(input.shape, input.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):  # no target at all
        rows = np.broadcast_to(g if total is None else g / total, share.shape)
    _nll_backward(rows, np.ascontiguousarray(places), np.ascontiguousarray(share), out)
    return out


def _handles(input: np.ndarray, target: np.ndarray) -> bool:
    return compiled_for(input) and input.ndim == 2 and input.shape[1] > 0 and target.dtype.char == "l"


def _no_class(target: Any, input: np.ndarray) -> IndexError:
    return IndexError(f"Target {target} is out of bounds: there are {input.shape[1]} classes.")


def _for_rows(
    loop: Any, x: np.ndarray, target: np.ndarray, each: np.ndarray, *args: Any
) -> tuple[int, float, int]:
    """loop(x, target, each, *args, first, end) for all rows, by all threads.

    Returns (first bad target or -1, the sum of `each` if these are the losses, rows that count).
    """
    if x.size < WORTH_SHARING or threads() == 1:
        return loop(x, target, each, *args, 0, len(x))
    found: list[tuple[int, float, int]] = []
    in_parts(lambda first, end: found.append(loop(x, target, each, *args, first, end)), len(x))
    bad = min((bad for bad, _, _ in found if bad >= 0), default=-1)
    # Added up anew, in an order that does not depend on the parts.
    return bad, _total(each), sum(count for _, _, count in found)


@kernel
def _total(losses):
    total = 0.0
    for i in range(losses.size):
        total += losses[i]
    return total


@kernel
def _cross_entropy(x, target, losses, sums, ignore_index, smoothing, first, end):
    """Fill losses and sums from row `first` to `end`; return what `_for_rows` does."""
    classes = x.shape[1]
    number = x.dtype.type
    kept = 0
    for i in range(first, end):
        row = x[i]
        key = to_ordered(row[0])
        for j in range(classes):
            k = to_ordered(row[j])
            key = k if k > key else key
        top = from_ordered(key)
        total = number(0)
        for j in range(classes):
            total += exp_of_negative(row[j] - top)
        log_total = number(math.log(total))
        sums[0, i], sums[1, i] = top, log_total
        t = target[i]
        if t == ignore_index:
            losses[i] = number(0)
            continue
        if t < 0 or t >= classes:
            return i, 0.0, kept
        loss = log_total - (row[t] - top)
        if smoothing > 0.0:
            distance = number(0)
            for j in range(classes):
                distance += row[j] - top
            uniform = log_total - distance / number(classes)
            loss = number(1 - smoothing) * loss + number(smoothing) * uniform
        losses[i] = loss
        kept += 1
    return -1, _total(losses[first:end]), kept


@kernel
def _cross_entropy_backward(x, target, scales, sums, out, ignore_index, smoothing, first, end):
    """Fill out from row `first` to `end`; return what `_for_rows` does, of which only the first counts."""
    classes = x.shape[1]
    number = x.dtype.type
    everywhere = number(smoothing / classes)
    for i in range(first, end):
        row, result = x[i], out[i]
        t = target[i]
        if t == ignore_index:
            result[:] = number(0)
            continue
        if t < 0 or t >= classes:
            return i, 0.0, 0
        scale, top, log_total = scales[i], sums[0, i], sums[1, i]
        for j in range(classes):
            result[j] = scale * (exp_of_negative(less_both(row[j], top, log_total)) - everywhere)
        result[t] -= scale * number(1 - smoothing)
    return -1, 0.0, 0


@kernel
def _nll(x, target, weight, ignore_index, losses, share, places):
    """Fill losses, share and places; return (first row with a bad target or -1, sum of losses, sum of share).

    An empty weight is 1 everywhere.
    """
    number = x.dtype.type
    loss_sum = 0.0
    total = 0.0
    for i in range(len(target)):
        t = target[i]
        if t == ignore_index:
            losses[i], share[i], places[i] = number(0), number(0), 0
            continue
        if t < 0 or t >= x.shape[1]:
            return i, loss_sum, total
        w = weight[t] if weight.size else number(1)
        losses[i], share[i], places[i] = -x[i, t] * w, w, t
        loss_sum += losses[i]
        total += w
    return -1, loss_sum, total


@kernel
def _nll_backward(g, places, share, out):
    for i in range(len(places)):
        if share[i] != 0:  # where all are ignored g is infinite
            out[i, places[i]] = -share[i] * g[i]


def huber(input: np.ndarray, delta: float, scale: float = 1.0) -> np.ndarray:
    """scale times x**2 / 2 within [-delta, delta], else times delta * (|x| - delta / 2)."""
    return of_elements(_huber, input, options=(delta, scale))


def huber_backward(g: np.ndarray, input: np.ndarray, delta: float, scale: float) -> np.ndarray:
    """The gradient of `huber` for `input`."""
    return of_elements(_huber_backward, g, input, options=(delta, scale))


def square_backward(g: np.ndarray, input: np.ndarray) -> np.ndarray:
    """The gradient of `square`, whose sum or mean is a loss."""
    return of_elements(_square_backward, g, input)


def _square_backward(g, x):
    return g * type(x)(2) * x


def _huber(x, delta, scale):
    size, half = abs(x), type(x)(0.5)
    inner = where(size < delta, size, delta)
    return inner * (size - half * inner) * scale


def _huber_backward(g, x, delta, scale):
    return where(x > delta, delta, where(x < -delta, -delta, x)) * (g * scale)
