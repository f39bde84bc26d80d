"""Compiled normalisation of groups of channels, and by the root mean square, for the CPU: float32 and float64.

As in `norm.py`, whose helpers these kernels share, statistics are taken in two passes.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from .norm import ROWS, _flat, _present, _rows
from .threads import in_parts, shared
from .vectormath import compiled_for, kernel

Array = np.ndarray[Any, Any]


def rms_norm(input: Array, weight: Array | None, ndim: int, eps: float) -> tuple[Array, Array]:
    """Divide the last `ndim` dimensions by their root mean square: (out, 1 / that of shape input.shape[:-ndim])."""
    if not compiled_for(input, *_present(weight)):
        return NotImplemented
    x, n = _rows(input, ndim)
    out = np.empty(input.shape, input.dtype)
    rstd = np.empty(input.shape[: input.ndim - ndim], input.dtype)
    _rms_norm(x, _flat(weight, 1, n, x), eps, out.reshape(x.shape), rstd.reshape(-1))
    return out, rstd


def rms_norm_backward(
    g: Array, input: Array, weight: Array | None, ndim: int, eps: float, rstd: Array
) -> tuple[Array, Array | None]:
    """Gradients of `rms_norm` for input and weight; None where weight is None."""
    if rstd is None or not compiled_for(g, input, rstd, *_present(weight)):
        return NotImplemented
    x, n = _rows(input, ndim)
    g_input, g_weight = np.empty(input.shape, input.dtype), np.zeros((-(-len(x) // ROWS), n), input.dtype)
    inverse, scale = np.ascontiguousarray(rstd).reshape(-1), _flat(weight, 1, n, x)
    rows = _rows(g, ndim)[0], x, scale, inverse, g_input.reshape(x.shape)
    in_parts(partial(_rms_norm_backward, *rows, g_weight), len(g_weight), x.size)
    return g_input, None if weight is None else g_weight.sum(0).reshape(input.shape[input.ndim - ndim :])


def group_norm(
    input: Array, weight: Array | None, bias: Array | None, groups: int, eps: float
) -> tuple[Array, Array, Array]:
    """Normalise each group of channels of input (N, C, *): (out, mean, rstd), the last two of shape (N, groups)."""
    if not compiled_for(input, *_present(weight, bias)):
        return NotImplemented
    x = _grouped(input, groups)
    channels = input.shape[1]
    out = np.empty(input.shape, input.dtype)
    mean = np.empty((input.shape[0], groups), input.dtype)
    rstd = np.empty_like(mean)
    scale, shift = _flat(weight, 1, channels, x), _flat(bias, 0, channels, x)
    shape = (groups, channels // groups)
    _group_norm(x, scale.reshape(shape), shift.reshape(shape), eps, out.reshape(x.shape), mean, rstd)
    return out, mean, rstd


def group_norm_backward(
    g: Array,
    input: Array,
    weight: Array | None,
    with_bias: bool,
    groups: int,
    eps: float,
    mean: Array,
    rstd: Array,
) -> tuple[Array, Array | None, Array | None]:
    """Gradients of `group_norm` for input, weight and bias; None where weight is None, or there is no bias."""
    if rstd is None or not compiled_for(g, input, mean, rstd, *_present(weight)):
        return NotImplemented
    x = _grouped(input, groups)
    channels = input.shape[1]
    g_input = np.empty(input.shape, input.dtype)
    g_weight, g_bias = np.zeros((2, groups, channels // groups), input.dtype)
    work = partial(
        _group_norm_backward,
        _grouped(g, groups),
        x,
        _flat(weight, 1, channels, x).reshape(g_weight.shape),
        np.ascontiguousarray(mean),
        np.ascontiguousarray(rstd),
        g_input.reshape(x.shape),
        g_weight,
        g_bias,
    )
    in_parts(work, groups, x.size)
    return (
        g_input,
        None if weight is None else g_weight.reshape(channels),
        g_bias.reshape(channels) if with_bias else None,
    )


def _grouped(x: Array, groups: int) -> Array:
    """x (N, C, *) as (N, groups, channels of a group, elements of a channel)."""
    n, channels = x.shape[:2]
    return np.ascontiguousarray(x).reshape(n, groups, channels // groups, math.prod(x.shape[2:]))


@shared("x", "out", "rstd")
@kernel
def _rms_norm(x, weight, eps, out, rstd):
    rows, n = x.shape
    number = x.dtype.type
    share = number(1 / n)
    for i in range(rows):
        row, result = x[i], out[i]
        squares = number(0)
        for j in range(n):
            squares += row[j] * row[j]
        inverse = number(1 / math.sqrt(squares * share + eps))
        for j in range(n):
            result[j] = row[j] * inverse * weight[j]
        rstd[i] = inverse


@kernel
def _rms_norm_backward(g, x, weight, rstd, g_input, g_weights, first, end):
    """Blocks of ROWS rows from `first` to `end`; g_weights (blocks, n): the parts of the weight's."""
    rows, n = x.shape
    number = x.dtype.type
    share = number(1 / n)
    for i in range(first * ROWS, min(end * ROWS, rows)):
        g_row, row, result, g_weight = g[i], x[i], g_input[i], g_weights[i // ROWS]
        inverse = rstd[i]
        dot = number(0)
        for j in range(n):
            unit = row[j] * inverse
            dot += g_row[j] * weight[j] * unit
            g_weight[j] += g_row[j] * unit
        dot *= share
        for j in range(n):
            result[j] = inverse * (g_row[j] * weight[j] - row[j] * inverse * dot)


@shared("x", "out", "mean", "rstd")
@kernel
def _group_norm(x, weight, bias, eps, out, mean, rstd):
    images, groups, channels, n = x.shape
    number = x.dtype.type
    count = channels * n
    for i in range(images):
        for k in range(groups):
            # Each channel is summed in the data's type, the channels in float64.
            total = 0.0
            for c in range(channels):
                part = number(0)
                row = x[i, k, c]
                for j in range(n):
                    part += row[j]
                total += part
            middle = number(total / count)
            total = 0.0
            for c in range(channels):
                part = number(0)
                row = x[i, k, c]
                for j in range(n):
                    part += (row[j] - middle) * (row[j] - middle)
                total += part
            inverse = number(1 / math.sqrt(total / count + eps))
            for c in range(channels):
                row, result = x[i, k, c], out[i, k, c]
                scale = inverse * weight[k, c]
                shift = bias[k, c]
                for j in range(n):
                    result[j] = (row[j] - middle) * scale + shift
            mean[i, k] = middle
            rstd[i, k] = inverse


@kernel
def _group_norm_backward(g, x, weight, mean, rstd, g_input, g_weight, g_bias, first, end):
    """Groups from `first` to `end`."""
    images, _, channels, n = x.shape
    number = x.dtype.type
    count = channels * n
    for i in range(images):
        for k in range(first, end):
            middle, inverse = mean[i, k], rstd[i, k]
            total = 0.0
            dot = 0.0
            for c in range(channels):
                part = number(0)
                part_dot = number(0)
                g_row, row = g[i, k, c], x[i, k, c]
                for j in range(n):
                    part += g_row[j]
                    part_dot += g_row[j] * (row[j] - middle)
                g_bias[k, c] += part
                g_weight[k, c] += part_dot * inverse
                total += part * weight[k, c]
                dot += part_dot * weight[k, c]
            offset = number(total / count)
            slope = number(dot * inverse * inverse / count)
            for c in range(channels):
                g_row, row, result = g[i, k, c], x[i, k, c], g_input[i, k, c]
                scale = weight[k, c]
                for j in range(n):
                    result[j] = inverse * (g_row[j] * scale - offset - (row[j] - middle) * slope)
