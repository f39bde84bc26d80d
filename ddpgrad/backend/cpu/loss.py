"""Compiled losses for the CPU: Huber's, and cross entropy over class indices without an array of probabilities."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from .element_loops import of_elements
from .numbers import where
from .threads import in_parts
from .vectormath import compiled_for, exp_of_negative, from_ordered, kernel, less_both, to_ordered

_BLOCK = 512  # columns that are done together, so that what is known of them stays in cache


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

    The loss has shape () for reduction "mean" (over the weights of the targets that are not `ignore_index`; NaN
    when there is none) and "sum", (N,) for "none". With `label_smoothing` e the wanted distribution is (1 - e) at the
    target plus e / C everywhere, times the weights of the classes. Raises IndexError for a target outside of [0, C).
    """
    if not _handles(input, target):
        return NotImplemented
    count, turned = len(target), _is_turned(input)
    x, target, weights = _operands(input, turned, target, weight)
    losses, sums = np.empty(count, input.dtype), np.empty((2, count), input.dtype)
    distances = np.empty(count if label_smoothing else 0, input.dtype)
    in_parts(
        partial(_sums_of_columns if turned else _sums_of_rows, x, weights, sums, distances), count, x.size
    )
    bad, total, counted = _losses(
        x, turned, target, weights, ignore_index, label_smoothing, sums, distances, losses
    )
    if bad >= 0:
        raise _no_class(target[bad], input)
    if reduction == "none":
        return losses, sums
    if reduction == "mean":
        total = total / counted if counted else math.nan
    return np.array(total, input.dtype), sums


def cross_entropy_backward(
    g: np.ndarray,
    input: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
    sums: np.ndarray | None,
) -> np.ndarray:
    """The gradient of `cross_entropy_rows` for input (N, C), which lies as that does; g has the shape of the loss."""
    if sums is None or not _handles(input, target) or not compiled_for(g, input, sums):
        return NotImplemented
    turned = _is_turned(input)
    x, target, weights = _operands(input, turned, target, weight)
    scales = np.empty(len(target), input.dtype)
    bad, counted = _scales(np.ascontiguousarray(g).reshape(-1), target, weights, ignore_index, scales)
    if bad >= 0:  # changed since forward, by `.data` or NumPy
        raise _no_class(target[bad], input)
    if reduction == "mean":
        scales /= counted or math.inf
    out = np.empty(x.shape, x.dtype)
    given = x, target, weights, np.ascontiguousarray(sums), scales, label_smoothing, out
    in_parts(partial(_grads_of_columns if turned else _grads_of_rows, *given), len(target), x.size)
    return out.T if turned else out


def _is_turned(input: np.ndarray) -> bool:
    """Whether the scores of a class lie one after another, as those of images do."""
    return input.flags.f_contiguous and not input.flags.c_contiguous


def _operands(
    input: np.ndarray, turned: bool, target: np.ndarray, weight: np.ndarray | None
) -> list[np.ndarray]:
    # Weights of 16 bits come with scores of 16 bits, which are float32 here.
    weights = (
        np.ones(input.shape[1], input.dtype) if weight is None else weight.astype(input.dtype, copy=False)
    )
    return [np.ascontiguousarray(x) for x in (input.T if turned else input, target, weights)]


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


@kernel
def _sums_of_rows(x, weights, sums, distances, first, end):
    """Fill sums for rows `first` to `end` of x (N, C), and distances: of the weighted scores from the largest, together."""
    number = x.dtype.type
    for i in range(first, end):
        row = x[i]
        key = to_ordered(row[0])
        for j in range(row.size):
            k = to_ordered(row[j])
            key = k if k > key else key
        top = from_ordered(key)
        total = number(0)
        for j in range(row.size):
            total += exp_of_negative(row[j] - top)
        sums[0, i], sums[1, i] = top, number(math.log(total))
        if distances.size:
            distance = number(0)
            for j in range(row.size):
                distance += weights[j] * (top - row[j])
            distances[i] = distance


@kernel
def _sums_of_columns(x, weights, sums, distances, first, end):
    """`_sums_of_rows` for x (C, N)."""
    for start in range(first, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        tops, totals = sums[0, start:stop], sums[1, start:stop]
        for k in range(tops.size):
            tops[k], totals[k] = x[0, start + k], 0
        for c in range(1, x.shape[0]):
            row = x[c, start:stop]
            for k in range(tops.size):
                tops[k] = row[k] if row[k] > tops[k] or row[k] != row[k] else tops[k]
        for c in range(x.shape[0]):
            row = x[c, start:stop]
            for k in range(tops.size):
                totals[k] += exp_of_negative(row[k] - tops[k])
        for k in range(tops.size):
            totals[k] = math.log(totals[k])
        if distances.size:
            far = distances[start:stop]
            far[:] = 0
            for c in range(x.shape[0]):
                row = x[c, start:stop]
                for k in range(tops.size):
                    far[k] += weights[c] * (tops[k] - row[k])


@kernel
def _losses(x, turned, target, weights, ignore_index, smoothing, sums, distances, losses):
    """Fill losses; return (first row with a bad target or -1, the sum of the losses, that of the targets' weights)."""
    number, everything = x.dtype.type, np.sum(weights)
    total, counted = 0.0, 0.0
    for i in range(target.size):
        t = target[i]
        if t == ignore_index:
            losses[i] = 0
            continue
        if t < 0 or t >= weights.size:
            return i, 0.0, 0.0
        score = x[t, i] if turned else x[i, t]
        loss = -weights[t] * less_both(score, sums[0, i], sums[1, i])
        if smoothing > 0.0:
            even = everything * sums[1, i] + distances[i]
            loss = number(1 - smoothing) * loss + number(smoothing / weights.size) * even
        losses[i] = loss
        total += loss
        counted += weights[t]
    return -1, total, counted


@kernel
def _scales(g, target, weights, ignore_index, scales):
    """Fill scales with g, one number or one for each target that counts; return what `_losses` does but for their sum."""
    counted = 0.0
    for i in range(target.size):
        t = target[i]
        if t == ignore_index:
            scales[i] = 0
            continue
        if t < 0 or t >= weights.size:
            return i, 0.0
        scales[i] = g[i] if g.size > 1 else g[0]
        counted += weights[t]
    return -1, counted


@kernel
def _grads_of_rows(x, target, weights, sums, scales, smoothing, out, first, end):
    """Fill rows `first` to `end` of out (N, C)."""
    number = x.dtype.type
    own, even, everything = number(1 - smoothing), number(smoothing / weights.size), np.sum(weights)
    for i in range(first, end):
        row, result, scale = x[i], out[i], scales[i]
        if scale == 0:
            result[:] = 0
            continue
        t, top, log_total = target[i], sums[0, i], sums[1, i]
        whole, less = scale * (own * weights[t] + even * everything), scale * even
        for j in range(row.size):
            result[j] = whole * exp_of_negative(less_both(row[j], top, log_total)) - less * weights[j]
        result[t] -= scale * own * weights[t]


@kernel
def _grads_of_columns(x, target, weights, sums, scales, smoothing, out, first, end):
    """`_grads_of_rows` for x and out (C, N)."""
    number = x.dtype.type
    own, even, everything = number(1 - smoothing), number(smoothing / weights.size), np.sum(weights)
    wholes = np.empty(_BLOCK, x.dtype)
    for start in range(first, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        scale, tops, logs = scales[start:stop], sums[0, start:stop], sums[1, start:stop]
        for k in range(scale.size):
            if scale[k] != 0:
                wholes[k] = scale[k] * (own * weights[target[start + k]] + even * everything)
        for c in range(x.shape[0]):
            row, result, less = x[c, start:stop], out[c, start:stop], even * weights[c]
            for k in range(scale.size):
                grad = wholes[k] * exp_of_negative(less_both(row[k], tops[k], logs[k])) - scale[k] * less
                result[k] = grad if scale[k] != 0 else number(0)
        for k in range(scale.size):
            if scale[k] != 0:
                t = target[start + k]
                out[t, start + k] -= scale[k] * own * weights[t]


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
