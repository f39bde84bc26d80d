"""Compiled layer and batch normalisation for the CPU, float32 and float64.

Means and variances are taken in two passes over values that are still in cache, never as
E[x^2] - E[x]^2, which loses all digits when the mean is large. Functions return
`NotImplemented`, before anything else, for types they are not written for.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ..dtype import prepare_narrow
from .half import is_half, stored
from .threads import in_parts, shared
from .vectormath import compiled_for, kernel, narrowed, widened

Array = np.ndarray

# Rows whose part of a weight's gradient is summed before it joins the others.
ROWS = 128


def layer_norm(
    input: Array, weight: Array | None, bias: Array | None, ndim: int, eps: float
) -> tuple[Array, Array, Array]:
    """Normalise over the last `ndim` dimensions: (out, mean, rstd), the last two of shape input.shape[:-ndim].

    `weight` and `bias` have the shape of the normalised dimensions; rstd is 1 / sqrt(variance + eps). Of floats of 16 bits
    all but the result is float32.
    """
    narrow = is_half(input.dtype)
    if narrow:
        if any(p.dtype not in (input.dtype, np.float32) for p in _present(weight, bias)):
            return NotImplemented
        prepare_narrow()
        weight, bias = (None if p is None else p.astype(np.float32, copy=False) for p in (weight, bias))
    elif not compiled_for(input, *_present(weight, bias)):
        return NotImplemented
    x, n = _rows(input, ndim)
    out = np.empty(input.shape, input.dtype)
    mean = np.empty(input.shape[: input.ndim - ndim], np.float32 if narrow else input.dtype)
    rstd = np.empty_like(mean)
    _layer_norm(
        stored(x),
        _flat(weight, 1, n, mean),
        _flat(bias, 0, n, mean),
        eps,
        stored(out).reshape(x.shape),
        mean.reshape(-1),
        rstd.reshape(-1),
    )
    return out, mean, rstd


def layer_norm_backward(
    g: Array,
    input: Array,
    weight: Array | None,
    bias: Array | None,
    ndim: int,
    eps: float,
    mean: Array,
    rstd: Array,
) -> tuple[Array, Array | None, Array | None]:
    """Gradients of `layer_norm` for input, weight and bias; None where weight or bias is None."""
    if not compiled_for(g, input, mean, rstd, *_present(weight, bias)):
        return NotImplemented
    x, n = _rows(input, ndim)
    g_input = np.empty(input.shape, input.dtype)
    g_affine = np.zeros((2, -(-len(x) // ROWS), n), input.dtype)
    work = partial(
        _layer_norm_backward,
        _rows(g, ndim)[0],
        x,
        _flat(weight, 1, n, x),
        np.ascontiguousarray(mean).reshape(-1),
        np.ascontiguousarray(rstd).reshape(-1),
        g_input.reshape(x.shape),
        g_affine,
    )
    in_parts(work, g_affine.shape[1], x.size)
    g_weight, g_bias = g_affine.sum(1).reshape(2, *input.shape[input.ndim - ndim :])
    return g_input, None if weight is None else g_weight, None if bias is None else g_bias


def batch_norm(
    input: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array, Array]:
    """Normalise each channel of input (N, C, *) by its own statistics: (out, mean, rstd, var).

    mean, rstd and var have shape (C,); var is the biased variance, rstd is 1 / sqrt(var + eps).
    """
    if not compiled_for(input, *_present(weight, bias)):
        return NotImplemented
    x = _channels(input)
    channels = x.shape[1]
    out = np.empty(input.shape, input.dtype)
    mean, rstd, var = (np.empty(channels, input.dtype) for _ in range(3))
    scale, shift = _flat(weight, 1, channels, x), _flat(bias, 0, channels, x)
    if x.shape[2] == 1:
        _batch_norm_rows(x[:, :, 0], scale, shift, eps, out.reshape(x.shape[:2]), mean, rstd, var)
    else:
        work = partial(_batch_norm, x, scale, shift, eps, out.reshape(x.shape), mean, rstd, var)
        in_parts(work, channels, x.size)
    return out, mean, rstd, var


def batch_norm_backward(
    g: Array, input: Array, weight: Array | None, bias: Array | None, eps: float, mean: Array, rstd: Array
) -> tuple[Array, Array | None, Array | None]:
    """Gradients of `batch_norm` for input, weight and bias; None where weight or bias is None."""
    if not compiled_for(g, input, mean, rstd, *_present(weight, bias)):
        return NotImplemented
    x = _channels(input)
    channels = x.shape[1]
    g_input = np.empty(input.shape, input.dtype)
    g_weight, g_bias = np.empty(channels, input.dtype), np.empty(channels, input.dtype)
    statistics = _flat(weight, 1, channels, x), np.ascontiguousarray(mean), np.ascontiguousarray(rstd)
    if x.shape[2] == 1:
        rows = g_input.reshape(x.shape[:2])
        _batch_norm_rows_backward(_channels(g)[:, :, 0], x[:, :, 0], *statistics, rows, g_weight, g_bias)
    else:
        images = g_input.reshape(x.shape)
        work = partial(_batch_norm_backward, _channels(g), x, *statistics, images, g_weight, g_bias)
        in_parts(work, channels, x.size)
    return g_input, None if weight is None else g_weight, None if bias is None else g_bias


def channel_affine(input: Array, weight: Array, bias: Array) -> Array:
    """input (N, C, *) times weight (C,) plus bias (C,); floats of 16 bits are computed in float32."""
    half = input.itemsize == 2
    number = np.dtype(np.float32) if half else input.dtype
    if not input.size or not input.flags.c_contiguous or not compiled_for(np.empty(0, number)):
        return NotImplemented
    if (half and not is_half(input.dtype)) or any(
        p.dtype not in (number, input.dtype) for p in (weight, bias)
    ):
        return NotImplemented
    if half:
        prepare_narrow()
    x, out = _channels(input), np.empty(input.shape, input.dtype)
    numbers = [np.ascontiguousarray(p, dtype=number).reshape(x.shape[1]) for p in (weight, bias)]
    loop = _channel_affine_rows if x.shape[2] == 1 else _channel_affine
    loop(stored(x), *numbers, stored(out).reshape(x.shape))
    return out


def _present(*arrays: Array | None) -> list[Array]:
    return [a for a in arrays if a is not None]


def _rows(x: Array, ndim: int) -> tuple[Array, int]:
    """x as (rows, n), n the number of elements that are normalised together."""
    n = math.prod(x.shape[x.ndim - ndim :])
    return np.ascontiguousarray(x).reshape(math.prod(x.shape[: x.ndim - ndim]), n), n


def _channels(x: Array) -> Array:
    """x (N, C, *) as (N, C, elements of a channel)."""
    return np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1], math.prod(x.shape[2:]))


def _flat(parameter: Array | None, default: float, n: int, like: Array) -> Array:
    """The parameter as a vector of n; `default` everywhere when there is none, so that one kernel serves."""
    if parameter is None:
        return np.full(n, default, like.dtype)
    return np.ascontiguousarray(parameter).reshape(n)


@shared("x", "out")
@kernel
def _channel_affine(x, weight, bias, out):
    images, channels, n = x.shape
    for i in range(images):
        for c in range(channels):
            row, result, scale, shift = x[i, c], out[i, c], weight[c], bias[c]
            for j in range(n):
                result[j] = narrowed(widened(row[j]) * scale + shift, result)


@shared("x", "out")
@kernel
def _channel_affine_rows(x, weight, bias, out):
    """As `_channel_affine` where a channel has one element in each image, so that channels lie side by side."""
    images, channels, _ = x.shape
    for i in range(images):
        row, result = x[i, :, 0], out[i, :, 0]
        for c in range(channels):
            result[c] = narrowed(widened(row[c]) * weight[c] + bias[c], result)


@shared("x", "out", "mean", "rstd")
@kernel
def _layer_norm(x, weight, bias, eps, out, mean, rstd):
    rows, n = x.shape
    number = mean.dtype.type
    share = number(1 / n)
    for i in range(rows):
        row, result = x[i], out[i]
        total = number(0)
        for j in range(n):
            total += widened(row[j])
        middle = total * share
        squares = number(0)
        for j in range(n):
            squares += (widened(row[j]) - middle) * (widened(row[j]) - middle)
        inverse = number(1 / math.sqrt(squares * share + eps))
        for j in range(n):
            result[j] = narrowed((widened(row[j]) - middle) * inverse * weight[j] + bias[j], result)
        mean[i] = middle
        rstd[i] = inverse


@kernel
def _layer_norm_backward(g, x, weight, mean, rstd, g_input, g_affine, first, end):
    """Blocks of ROWS rows from `first` to `end`; g_affine (2, blocks, n): the parts of weight and bias."""
    rows, n = x.shape
    number = x.dtype.type
    share = number(1 / n)
    for i in range(first * ROWS, min(end * ROWS, rows)):
        g_row, row, result = g[i], x[i], g_input[i]
        g_weight, g_bias = g_affine[0, i // ROWS], g_affine[1, i // ROWS]
        middle, inverse = mean[i], rstd[i]
        total = number(0)
        dot = number(0)
        for j in range(n):
            unit = (row[j] - middle) * inverse
            weighted = g_row[j] * weight[j]
            total += weighted
            dot += weighted * unit
            g_weight[j] += g_row[j] * unit
            g_bias[j] += g_row[j]
        total *= share
        dot *= share
        for j in range(n):
            unit = (row[j] - middle) * inverse
            result[j] = inverse * (g_row[j] * weight[j] - total - unit * dot)


@kernel
def _batch_norm(x, weight, bias, eps, out, mean, rstd, var, first, end):
    """Channels from `first` to `end`."""
    images, _, n = x.shape
    number = x.dtype.type
    for c in range(first, end):
        # The part of one image is summed in the data's type, the images in float64.
        total = 0.0
        for i in range(images):
            part = number(0)
            row = x[i, c]
            for j in range(n):
                part += row[j]
            total += part
        middle = number(total / (images * n))
        total = 0.0
        for i in range(images):
            part = number(0)
            row = x[i, c]
            for j in range(n):
                part += (row[j] - middle) * (row[j] - middle)
            total += part
        variance = total / (images * n)
        inverse = number(1 / math.sqrt(variance + eps))
        scale = inverse * weight[c]
        shift = bias[c]
        for i in range(images):
            row, result = x[i, c], out[i, c]
            for j in range(n):
                result[j] = (row[j] - middle) * scale + shift
        mean[c] = middle
        rstd[c] = inverse
        var[c] = number(variance)


@kernel
def _batch_norm_backward(g, x, weight, mean, rstd, g_input, g_weight, g_bias, first, end):
    """Channels from `first` to `end`."""
    images, _, n = x.shape
    number = x.dtype.type
    for c in range(first, end):
        middle, inverse = mean[c], rstd[c]
        total = 0.0
        dot = 0.0
        for i in range(images):
            part = number(0)
            part_dot = number(0)
            g_row, row = g[i, c], x[i, c]
            for j in range(n):
                part += g_row[j]
                part_dot += g_row[j] * (row[j] - middle)
            total += part
            dot += part_dot
        g_bias[c] = number(total)
        g_weight[c] = number(dot * inverse)
        scale = inverse * weight[c]
        offset = number(total / (images * n))
        slope = number(dot * inverse * inverse / (images * n))
        for i in range(images):
            g_row, row, result = g[i, c], x[i, c], g_input[i, c]
            for j in range(n):
                result[j] = scale * (g_row[j] - offset - (row[j] - middle) * slope)


@kernel
def _batch_norm_rows(x, weight, bias, eps, out, mean, rstd, var):
    """As `_batch_norm` where a channel has one element in each image, so that channels lie side by side."""
    images, channels = x.shape
    number = x.dtype.type
    totals = np.zeros(channels)
    for i in range(images):
        row = x[i]
        for c in range(channels):
            totals[c] += row[c]
    for c in range(channels):
        mean[c] = number(totals[c] / images)
        totals[c] = 0.0
    for i in range(images):
        row = x[i]
        for c in range(channels):
            totals[c] += (row[c] - mean[c]) * (row[c] - mean[c])
    scale = np.empty(channels, x.dtype)
    for c in range(channels):
        variance = totals[c] / images
        rstd[c] = number(1 / math.sqrt(variance + eps))
        scale[c] = rstd[c] * weight[c]
        var[c] = number(variance)
    for i in range(images):
        row, result = x[i], out[i]
        for c in range(channels):
            result[c] = (row[c] - mean[c]) * scale[c] + bias[c]


@kernel
def _batch_norm_rows_backward(g, x, weight, mean, rstd, g_input, g_weight, g_bias):
    """As `_batch_norm_backward` for `_batch_norm_rows`."""
    images, channels = x.shape
    number = x.dtype.type
    totals = np.zeros(channels)
    dots = np.zeros(channels)
    for i in range(images):
        g_row, row = g[i], x[i]
        for c in range(channels):
            totals[c] += g_row[c]
            dots[c] += g_row[c] * (row[c] - mean[c])
    scale, offset, slope = (
        np.empty(channels, x.dtype),
        np.empty(channels, x.dtype),
        np.empty(channels, x.dtype),
    )
    for c in range(channels):
        g_bias[c] = number(totals[c])
        g_weight[c] = number(dots[c] * rstd[c])
        scale[c] = rstd[c] * weight[c]
        offset[c] = number(totals[c] / images)
        slope[c] = number(dots[c] * rstd[c] * rstd[c] / images)
    for i in range(images):
        g_row, row, result = g[i], x[i], g_input[i]
        for c in range(channels):
            result[c] = scale[c] * (g_row[c] - offset[c] - (row[c] - mean[c]) * slope[c])
