"""Pooling over windows of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from .conv import Pair, _pair
from .declare import op


def pooled_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Length of a pooled dimension; with `ceil_mode` a last window may reach over the edge."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= size + padding:
        out -= 1  # the last window must start inside the image or its left padding
    return out


def _adapt_max(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Any, ...]:
    kernel = _pair(kernel_size)
    _check("max_pool2d", input, kernel, _pair(padding), _pair(dilation))
    return (
        input,
        kernel,
        kernel if stride is None or stride == () else _pair(stride),
        _pair(padding),
        _pair(dilation),
        ceil_mode,
    )


def _check(name: str, input: Tensor, kernel: Pair, padding: Pair, dilation: Pair) -> None:
    if input.ndim != 4:
        raise RuntimeError(f"{name}(): expected a 4D input (N, C, H, W), got {list(input.shape)}")
    for k, p, d, n in zip(kernel, padding, dilation, input.shape[2:], strict=True):
        if p > k // 2:
            raise RuntimeError(
                f"{name}(): pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k}"
            )
        if n + 2 * p < d * (k - 1) + 1:
            raise RuntimeError(
                f"{name}(): kernel {kernel} is larger than the padded input {list(input.shape)}"
            )


def _reference_max(
    x: Any, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Any:
    (kh, kw), (ph, pw), (dh, dw) = _pair(kernel), _pair(padding), _pair(dilation)
    sh, sw = (kh, kw) if stride is None else _pair(stride)
    n, c, h, w = x.shape
    oh, ow = pooled_size(h, kh, sh, ph, dh, ceil), pooled_size(w, kw, sw, pw, dw, ceil)
    out, where = np.empty((n, c, oh, ow)), np.empty((n, c, oh, ow), np.int64)
    for place in np.ndindex(n, c, oh, ow):
        best, at = -np.inf, 0
        for i in range(kh):
            for j in range(kw):
                y, z = place[2] * sh - ph + i * dh, place[3] * sw - pw + j * dw
                if 0 <= y < h and 0 <= z < w and x[place[0], place[1], y, z] > best:
                    best, at = x[place[0], place[1], y, z], y * w + z
        out[place], where[place] = best, at
    return out, where


@op(
    grads={"input": lambda F, g, input_shape, indices: F.max_pool2d_backward(g, indices, input_shape)},
    outputs=2,
    extras=("indices",),
    adapt=_adapt_max,
    samples=lambda rng: [
        ((rng.permutation(120).reshape(2, 2, 5, 6) / 9.0, 2), {}),
        ((rng.permutation(120).reshape(2, 2, 5, 6) / 9.0, 3), {"stride": 2, "padding": 1}),
        ((rng.permutation(120).reshape(2, 2, 5, 6) / 9.0, (2, 3)), {"stride": (2, 1), "ceil_mode": True}),
    ],
    reference=lambda x, k, stride=None, padding=0, ceil_mode=False: _reference_max(
        x, k, stride, padding, 1, ceil_mode
    ),
    method=False,
    grad_name="MaxPool2DWithIndicesBackward0",
)
def max_pool2d(
    F: Any,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its index in the flattened image."""
    windows, index = _windows(F, input, kernel_size, stride, padding, dilation, ceil_mode, -np.inf)
    best = F.argmax(windows, 0, True)
    values = F.reshape(F.gather(windows, 0, best), windows.shape[1:])
    index = F.expand(index, windows.shape)
    return values, F.reshape(F.gather(index, 0, best), windows.shape[1:])


def _windows(
    F: Any,
    input: Any,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    ceil_mode: bool,
    fill: float,
) -> Any:
    """(taps, N, C, OH, OW): what each tap of the window meets, and the flat index of each in the image."""
    h, w = input.shape[2:]
    size = [
        pooled_size(n, *a, ceil_mode)
        for n, a in zip((h, w), zip(kernel, stride, padding, dilation, strict=True), strict=True)
    ]
    # A window that reaches over the edge (ceil_mode) needs more room below and to the right.
    need = [(o - 1) * s + d * (k - 1) + 1 for o, s, d, k in zip(size, stride, dilation, kernel, strict=True)]
    after = [max(p, m - n - p) for n, p, m in zip((h, w), padding, need, strict=True)]
    padded = F.constant_pad(input, ((0, 0), (0, 0), (padding[0], after[0]), (padding[1], after[1])), fill)
    taps, index = [], []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + stride[0] * (size[0] - 1) + 1, stride[0])
            columns = slice(left, left + stride[1] * (size[1] - 1) + 1, stride[1])
            taps.append(padded[:, :, rows, columns])
            y = np.arange(size[0]) * stride[0] + top - padding[0]
            x = np.arange(size[1]) * stride[1] + left - padding[1]
            index.append(np.clip(y, 0, h - 1)[:, None] * w + np.clip(x, 0, w - 1)[None, :])
    return F.stack(taps, 0), F.reshape(F.asarray(np.stack(index)), (len(index), 1, 1, *size))


def _flat_images(F: Any, x: Any) -> Any:
    return F.reshape(x, (x.shape[0], x.shape[1], x.shape[2] * x.shape[3]))


@op(
    grads={"g": lambda F, g, indices: F.max_pool2d_gather(g, indices)},
    method=False,
)
def max_pool2d_backward(F: Any, g: Tensor, indices: Any, input_shape: Any) -> Tensor:
    """`g` added at the places that were largest; zeros elsewhere."""
    n, c, h, w = input_shape
    zeros = F.new_zeros(g, (n, c, h * w))
    return F.reshape(
        F.scatter_add(zeros, 2, _flat_images(F, _raw(indices)), _flat_images(F, g)), tuple(input_shape)
    )


@op(
    grads={"input": lambda F, g, indices, input_shape: F.max_pool2d_backward(g, indices, input_shape)},
    method=False,
)
def max_pool2d_gather(F: Any, input: Tensor, indices: Any) -> Tensor:
    """The elements of `input` at the places that were largest."""
    return F.reshape(F.gather(_flat_images(F, input), 2, _flat_images(F, _raw(indices))), indices.shape)


def _raw(x: Any) -> Any:
    return x._array if isinstance(x, Tensor) else x


def _adapt_avg(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> tuple[Any, ...]:
    kernel = _pair(kernel_size)
    _check("avg_pool2d", input, kernel, _pair(padding), (1, 1))
    return (
        input,
        kernel,
        kernel if stride is None else _pair(stride),
        _pair(padding),
        ceil_mode,
        count_include_pad,
    )


def _counts(shape: Any, kernel: Pair, stride: Pair, padding: Pair, ceil_mode: bool, include_pad: bool) -> Any:
    """(OH, OW): by how many elements each window is divided."""
    lengths = []
    for n, k, s, p in zip(shape[2:], kernel, stride, padding, strict=True):
        start = np.arange(pooled_size(n, k, s, p, 1, ceil_mode)) * s - p
        end = np.minimum(start + k, n + p)
        if not include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        lengths.append(end - start)
    return lengths[0][:, None] * lengths[1][None, :]


def _reference_avg(
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    kernel, padding = _pair(kernel), _pair(padding)
    stride = kernel if stride is None else _pair(stride)
    n, c, h, w = x.shape
    oh = pooled_size(h, kernel[0], stride[0], padding[0], 1, ceil_mode)
    ow = pooled_size(w, kernel[1], stride[1], padding[1], 1, ceil_mode)
    big = np.pad(
        x, ((0, 0), (0, 0), (padding[0], padding[0] + kernel[0]), (padding[1], padding[1] + kernel[1]))
    )
    out = np.empty((n, c, oh, ow))
    for i, j in np.ndindex(oh, ow):
        y, z = i * stride[0], j * stride[1]
        out[:, :, i, j] = big[:, :, y : y + kernel[0], z : z + kernel[1]].sum((2, 3))
    return out / _counts(x.shape, kernel, stride, padding, ceil_mode, count_include_pad)


@op(
    grads={
        "input": lambda F, g, input_shape, kernel_size, stride, padding, ceil_mode, count_include_pad: (
            F.avg_pool2d_backward(g, input_shape, kernel_size, stride, padding, ceil_mode, count_include_pad)
        )
    },
    adapt=_adapt_avg,
    samples=lambda rng: [
        ((rng.standard_normal((2, 2, 5, 6)), 2), {}),
        ((rng.standard_normal((2, 2, 5, 6)), 3), {"stride": 2, "padding": 1, "count_include_pad": False}),
    ],
    reference=_reference_avg,
    method=False,
)
def avg_pool2d(
    F: Any,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window."""
    windows, _ = _windows(F, input, kernel_size, stride, padding, (1, 1), ceil_mode, 0.0)
    counts = _counts(input.shape, kernel_size, stride, padding, ceil_mode, count_include_pad)
    return F.sum(windows, 0) / F.cast(F.asarray(counts), input.dtype)


@op(
    grads={
        "g": lambda F, g, kernel_size, stride, padding, ceil_mode, count_include_pad: F.avg_pool2d(
            g, kernel_size, stride, padding, ceil_mode, count_include_pad
        )
    },
    method=False,
)
def avg_pool2d_backward(
    F: Any,
    g: Tensor,
    input_shape: Any,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Tensor:
    """Each window's gradient spread evenly over its elements."""
    n, c, h, w = input_shape
    counts = _counts(input_shape, kernel_size, stride, padding, ceil_mode, count_include_pad)
    share = g / F.cast(F.asarray(counts), g.dtype)
    oh, ow = g.shape[2:]
    room = [(o - 1) * s + k for o, s, k in zip((oh, ow), stride, kernel_size, strict=True)]
    big = F.new_zeros(g, (n, c, max(room[0], h + padding[0]), max(room[1], w + padding[1])))
    for i in range(kernel_size[0]):
        for j in range(kernel_size[1]):
            big[
                :,
                :,
                i : i + stride[0] * (oh - 1) + 1 : stride[0],
                j : j + stride[1] * (ow - 1) + 1 : stride[1],
            ] += share
    return big[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + w]
