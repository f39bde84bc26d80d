"""Compiled sums over alignments for the loss of `nn/functional/ctc.py`, in float64."""

from __future__ import annotations

import math

import numpy as np

from .vectormath import kernel

Array = np.ndarray


def ctc_alignments(
    log_probs: Array, labels: Array, times: Array, sizes: Array, blank: int
) -> tuple[Array, Array]:
    """(losses (N,), gradients (T, N, C)) of log_probs (T, N, C) for labels (N, S); see `nn/functional/ctc.py`."""
    count = labels.shape[1]
    wanted = labels[np.arange(count) < sizes[:, None]]
    if wanted.size and not 0 <= wanted.min() <= wanted.max() < log_probs.shape[2]:
        return NotImplemented  # the portable form raises
    log_probs, gradient = np.ascontiguousarray(log_probs), np.exp(log_probs)
    losses = np.empty(len(sizes))
    lines = np.empty((len(log_probs), 2 * count + 1)), np.empty(2 * count + 1), np.empty(2 * count + 1)
    _align(log_probs, np.ascontiguousarray(labels, np.int64), times, sizes, blank, *lines, losses, gradient)
    return losses, gradient


@kernel
def _log_sum(a, b, c):
    """log(exp(a) + exp(b) + exp(c))."""
    if b > a:
        a, b = b, a
    if c > a:
        a, c = c, a
    if a == -np.inf:
        return a + b + c  # minus infinity, or NaN
    total = 1.0
    if b != -np.inf:
        total += math.exp(b - a)
    if c != -np.inf:
        total += math.exp(c - a)
    return a + math.log(total)


@kernel
def _reached(line, s, step, skips, end):
    """What arrives at place s of a line from itself, the place before it in a direction, and the one before that."""
    before = line[s - step] if 0 <= s - step < end else -np.inf
    skipped = line[s - 2 * step] if skips and 0 <= s - 2 * step < end else -np.inf
    return _log_sum(line[s], before, skipped)


@kernel
def _skips(row, s):
    """Whether place s may follow place s - 2: a label that differs from the last one."""
    return s % 2 == 1 and s > 1 and row[s // 2] != row[s // 2 - 1]


@kernel
def _align(log_probs, labels, times, sizes, blank, alpha, beta, ahead, losses, gradient):
    # Places are a blank before, between and after the labels.
    for n in range(len(sizes)):
        row, steps, places = labels[n], times[n], 2 * sizes[n] + 1
        for t in range(steps):
            emitted = log_probs[t, n]
            for s in range(places):
                label = row[s // 2] if s % 2 == 1 else blank
                if t == 0:
                    alpha[0, s] = emitted[label] if s < 2 else -np.inf
                else:
                    alpha[t, s] = emitted[label] + _reached(alpha[t - 1], s, 1, _skips(row, s), places)
        if steps == 0:
            losses[n] = 0.0 if places == 1 else np.inf
        else:
            last = alpha[steps - 1]
            losses[n] = -_log_sum(last[places - 1], last[places - 2] if places > 1 else -np.inf, -np.inf)
        possible = losses[n] < np.inf
        for t in range(steps - 1, -1, -1):
            emitted = log_probs[t, n]
            for s in range(places):
                if t == steps - 1:
                    ahead[s] = 0.0 if s >= places - 2 else -np.inf
                else:
                    skips = s + 2 < places and _skips(row, s + 2)
                    ahead[s] = _reached(beta, s, -1, skips, places)
            for s in range(places):
                label = row[s // 2] if s % 2 == 1 else blank
                beta[s] = emitted[label] + ahead[s]
                through = alpha[t, s] + ahead[s] + losses[n]
                if possible and through > -np.inf:
                    gradient[t, n, label] -= math.exp(through)
        gradient[steps:, n] = 0.0
