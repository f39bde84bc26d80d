"""Two-dimensional convolution: three bilinear ops, each the gradient of the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._tensor import Tensor
from .declare import op

Pair = tuple[int, int]


def _pair(value: Any) -> Pair:
    return (int(value[0]), int(value[-1])) if isinstance(value, (tuple, list)) else (int(value), int(value))


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Length of a convolved dimension."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _adapt(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Any, ...]:
    if input.ndim != 4 or weight.ndim != 4:
        raise RuntimeError(
            f"conv2d(): expected a 4D input (N, C, H, W) and a 4D weight, got input of size {list(input.shape)} and "
            f"weight of size {list(weight.shape)}"
        )
    stride, dilation = _pair(stride), _pair(dilation)
    if padding == "valid":
        padding = 0
    elif padding == "same":
        if stride != (1, 1):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        if any(r % 2 for r in reach):
            raise RuntimeError(
                f"conv2d(): padding='same' needs an odd kernel reach, got kernel {list(weight.shape[2:])} with "
                f"dilation {dilation}; pad the input with F.pad instead"
            )
        padding = (reach[0] // 2, reach[1] // 2)
    padding = _pair(padding)
    if input.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have "
            f"{weight.shape[1] * groups} channels, but got {input.shape[1]} channels instead"
        )
    if input._array.dtype != weight._array.dtype:
        raise RuntimeError(
            f"Input type ({input.dtype.name}) and weight type ({weight.dtype.name}) should be the same"
        )
    for size, k, p, d in zip(input.shape[2:], weight.shape[2:], padding, dilation, strict=True):
        if size + 2 * p < d * (k - 1) + 1:
            raise RuntimeError(
                f"Calculated padded input size per channel: ({size + 2 * p}). Kernel size: ({d * (k - 1) + 1}). "
                "Kernel size can't be greater than actual input size"
            )
    return input, weight, bias, stride, padding, dilation, groups


def _reference(
    x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    (sh, sw), (ph, pw), (dh, dw) = _pair(stride), _pair(padding), _pair(dilation)
    n, _, h, wd = x.shape
    o, cg, kh, kw = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    oh, ow = output_size(h, kh, sh, ph, dh), output_size(wd, kw, sw, pw, dw)
    out = np.zeros((n, o, oh, ow))
    og = o // groups
    for k in range(groups):
        for i in range(kh):
            for j in range(kw):
                part = x[
                    :, k * cg : (k + 1) * cg, i * dh : i * dh + sh * oh : sh, j * dw : j * dw + sw * ow : sw
                ]
                out[:, k * og : (k + 1) * og] += np.einsum(
                    "nchw,oc->nohw", part, w[k * og : (k + 1) * og, :, i, j]
                )
    return out if b is None else out + b[:, None, None]


def _samples(rng: Any) -> Any:
    x, w, b = rng.standard_normal((2, 4, 5, 6)), rng.standard_normal((6, 4, 3, 2)), rng.standard_normal(6)
    yield (x, w, b), {}
    yield (x, w), {"stride": 2, "padding": 1}
    yield (x, w[:, :2], b), {"groups": 2, "padding": (1, 0), "dilation": (2, 1)}
    yield (x, w[:, :, :1, :1], b), {"stride": (1, 2)}


def _rule(
    F: Any,
    g: Any,
    needs: Any,
    input: Any,
    weight: Any,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> tuple[Any, Any, Any]:
    options = (stride, padding, dilation, groups)
    return (
        F.conv2d_input(g, weight, tuple(input.shape), *options) if needs[0] else None,
        F.conv2d_weight(g, input, tuple(weight.shape), *options) if needs[1] else None,
        F.sum(g, (0, 2, 3)) if needs[2] else None,
    )


@op(
    joint=_rule,
    adapt=_adapt,
    samples=_samples,
    reference=_reference,
    method=False,
    grad_name="ConvolutionBackward0",
)
def conv2d(
    F: Any,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of `input` (N, C, H, W) with `weight` (O, C/groups, kh, kw), plus `bias` (O,)."""
    o = weight.shape[0]
    total = None
    size = [
        output_size(*a)
        for a in zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    ]
    padded = _padded(F, input, padding)
    for i, j, rows, columns in _taps(weight.shape, size, stride, dilation):
        part = F.getitem(padded, (slice(None), slice(None), rows, columns))
        part = F.reshape(part, (input.shape[0], groups, input.shape[1] // groups, size[0] * size[1]))
        tap = F.reshape(weight[:, :, i, j], (groups, o // groups, weight.shape[1]))
        product = F.matmul(tap, part)
        total = product if total is None else total + product
    out = F.reshape(total, (input.shape[0], o, *size))
    return out if bias is None else out + F.reshape(bias, (1, o, 1, 1))


def _padded(F: Any, x: Any, padding: Pair) -> Any:
    (ph, pw) = padding
    return F.constant_pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), 0.0) if ph or pw else x


def _taps(weight_shape: Any, size: Any, stride: Pair, dilation: Pair) -> Any:
    """(row and column of the kernel, slices of the padded input that it meets)."""
    for i in range(weight_shape[2]):
        for j in range(weight_shape[3]):
            top, left = i * dilation[0], j * dilation[1]
            rows = slice(top, top + stride[0] * (size[0] - 1) + 1, stride[0])
            columns = slice(left, left + stride[1] * (size[1] - 1) + 1, stride[1])
            yield i, j, rows, columns


@op(
    joint=lambda F, g, needs, grad, weight, input_shape, stride, padding, dilation, groups: (
        F.conv2d(g, weight, None, stride, padding, dilation, groups) if needs[0] else None,
        F.conv2d_weight(grad, g, tuple(weight.shape), stride, padding, dilation, groups)
        if needs[1]
        else None,
    ),
    method=False,
)
def conv2d_input(
    F: Any,
    grad: Tensor,
    weight: Tensor,
    input_shape: Any,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    """The gradient of `conv2d` for its input, from the gradient `grad` of its output."""
    n, c, h, w = input_shape
    (ph, pw), size = padding, grad.shape[2:]
    padded = F.new_zeros(grad, (n, c, h + 2 * ph, w + 2 * pw))
    flat = F.reshape(grad, (n, groups, grad.shape[1] // groups, size[0] * size[1]))
    for i, j, rows, columns in _taps(weight.shape, size, stride, dilation):
        tap = F.reshape(weight[:, :, i, j], (groups, weight.shape[0] // groups, weight.shape[1]))
        padded[:, :, rows, columns] += F.reshape(F.matmul(F.transpose(tap, 1, 2), flat), (n, c, *size))
    return padded[:, :, ph : ph + h, pw : pw + w]


@op(
    joint=lambda F, g, needs, grad, input, stride, padding, dilation, groups: (
        F.conv2d(input, g, None, stride, padding, dilation, groups) if needs[0] else None,
        F.conv2d_input(grad, g, tuple(input.shape), stride, padding, dilation, groups) if needs[1] else None,
    ),
    method=False,
)
def conv2d_weight(
    F: Any,
    grad: Tensor,
    input: Tensor,
    weight_shape: Any,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    """The gradient of `conv2d` for its weight, from the gradient `grad` of its output."""
    n, c = input.shape[:2]
    size = grad.shape[2:]
    padded = _padded(F, input, padding)
    out = F.new_zeros(grad, tuple(weight_shape))
    flat = F.reshape(grad, (n, groups, grad.shape[1] // groups, size[0] * size[1]))
    for i, j, rows, columns in _taps(weight_shape, size, stride, dilation):
        part = F.reshape(padded[:, :, rows, columns], (n, groups, c // groups, size[0] * size[1]))
        taps = F.sum(F.matmul(flat, F.transpose(part, 2, 3)), 0)
        out[:, :, i, j] = F.reshape(taps, (weight_shape[0], weight_shape[1]))
    return out
