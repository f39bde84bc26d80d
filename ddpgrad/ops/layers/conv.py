"""Convolution over any number of dimensions: three bilinear ops, each the gradient of the others.

A transposed convolution is the gradient of a convolution for its input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...backend.windows import Ints, convolved_size, edges, per_dimension, taps
from ...core.tensor import Tensor
from ..dispatch.declare import Sample, op


def _adapt(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Any, ...]:
    dims = weight.ndim - 2
    stride, padding = per_dimension(stride, dims, "stride"), per_dimension(padding, dims, "padding")
    dilation = per_dimension(dilation, dims, "dilation")
    check_options(stride, padding, dilation, groups)
    if groups > weight.shape[0]:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size "
            f"{list(weight.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
            f"size {list(weight.shape)} instead"
        )
    if input.shape[1] != weight.shape[1] * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have "
            f"{weight.shape[1] * groups} channels, but got {input.shape[1]} channels instead"
        )
    check_parameters(input, weight, bias, weight.shape[0])
    for size, k, p, d in zip(input.shape[2:], weight.shape[2:], padding, dilation, strict=True):
        if size + 2 * p < d * (k - 1) + 1:
            raise RuntimeError(
                f"Calculated padded input size per channel: ({size + 2 * p}). Kernel size: ({d * (k - 1) + 1}). "
                "Kernel size can't be greater than actual input size"
            )
    return input, weight, bias, stride, padding, dilation, groups


def check_options(stride: Ints, padding: Ints, dilation: Ints, groups: int) -> None:
    """`RuntimeError` for options that no convolution can have."""
    if min(stride, default=1) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation, default=1) <= 0:
        raise RuntimeError("dilation should be greater than zero")
    if min(padding, default=0) < 0:
        raise RuntimeError("negative padding is not supported")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")


def check_parameters(input: Tensor, weight: Tensor, bias: Tensor | None, outputs: int) -> None:
    """`RuntimeError` unless all are of one dtype, the bias has one number per output channel and nothing is empty but
    the batch or the channels of the input."""
    if 0 in weight.shape and (not weight.shape[0] or 0 in weight.shape[2:]):
        raise RuntimeError(
            f"channels and kernel size should be greater than zero, but got weight of size {list(weight.shape)}"
        )
    if 0 in input.shape and 0 not in input.shape[:2]:
        raise RuntimeError(
            f"Only zero batch or zero channel inputs are supported, but got input shape: {list(input.shape)}"
        )
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {outputs} elements, "
            f"but got bias of size {list(bias.shape)} instead"
        )
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other._array.dtype != input._array.dtype:
            raise RuntimeError(
                f"Input type ({input.dtype.cpp_name}) and {name} type ({other.dtype.cpp_name}) should be the same: "
                f"expected scalar type {input.dtype.scalar_type} but found {other.dtype.scalar_type}"
            )


def _reference(
    x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    dims = w.ndim - 2
    stride, padding, dilation = (per_dimension(v, dims) for v in (stride, padding, dilation))
    size = convolved_size(x.shape[2:], w.shape[2:], stride, padding, dilation)
    x = np.pad(x, edges(padding))
    out = np.zeros((len(x), len(w), *size))
    per_group = len(w) // groups
    for o in range(len(w)):
        first = o // per_group * w.shape[1]
        for at in np.ndindex(*size):
            window = tuple(
                slice(a * s, a * s + d * k, d)
                for a, s, d, k in zip(at, stride, dilation, w.shape[2:], strict=True)
            )
            part = x[(slice(None), slice(first, first + w.shape[1]), *window)]
            out[(slice(None), o, *at)] = (part * w[o]).sum(tuple(range(1, x.ndim)))
    return out if b is None else out + b.reshape(-1, *[1] * dims)


def _samples(rng: Any) -> Iterable[Sample]:
    x, w, b = rng.standard_normal((2, 4, 5, 6)), rng.standard_normal((6, 4, 3, 2)), rng.standard_normal(6)
    yield (x, w, b), {}
    yield (x, w), {"stride": 2, "padding": 1}
    yield (x, w[:, :2], b), {"groups": 2, "padding": (1, 0), "dilation": (2, 1)}
    yield (x, w[:, :, :1, :1], b), {"stride": (1, 2)}
    yield (x[:, :, 0], w[:, :, 0], b), {"stride": 3, "padding": 2}
    yield (x[:0], w, b), {}
    deep = rng.standard_normal((2, 2, 3, 4, 3))
    yield (deep, rng.standard_normal((4, 1, 2, 3, 2)), b[:4]), {"padding": (1, 0, 1), "groups": 2}
    yield (deep, rng.standard_normal((3, 2, 2, 2, 1))), {"stride": (2, 1, 2), "dilation": (2, 1, 1)}


def _rule(
    F: Any,
    g: Any,
    needs: Any,
    input: Any,
    weight: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> tuple[Any, Any, Any]:
    options = (stride, padding, dilation, groups)
    return (
        F.convolution_input(g, weight, tuple(input.shape), *options) if needs[0] else None,
        F.convolution_weight(g, input, tuple(weight.shape), *options) if needs[1] else None,
        F.sum(g, (0, *range(2, len(g.shape)))) if needs[2] else None,
    )


@op(joint=_rule, adapt=_adapt, samples=_samples, reference=_reference, method=False)
def convolution(
    F: Any,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of `input` (N, C, *size) with `weight` (O, C/groups, *kernel), plus `bias` (O,)."""
    (outputs, channels, *kernel), n = weight.shape, input.shape[0]
    size = convolved_size(input.shape[2:], tuple(kernel), stride, padding, dilation)
    total = None
    padded = _padded(F, input, padding)
    for place, window in taps(kernel, size, stride, dilation):
        part = F.reshape(padded[(slice(None), slice(None), *window)], (n, groups, channels, math.prod(size)))
        product = F.matmul(_tap(F, weight, place, groups), part)
        total = product if total is None else total + product
    out = F.reshape(total, (n, outputs, *size))
    return out if bias is None else out + F.reshape(bias, (outputs, *[1] * len(size)))


def _padded(F: Any, x: Any, padding: Ints) -> Any:
    return F.constant_pad(x, edges(padding), 0.0) if any(padding) else x


def _tap(F: Any, weight: Any, place: Ints, groups: int) -> Any:
    """(groups, O/groups, C/groups): the weights at one place of the kernel."""
    return F.reshape(weight[(..., *place)], (groups, weight.shape[0] // groups, weight.shape[1]))


def _rule_of_input(
    F: Any,
    g: Any,
    needs: Any,
    grad: Any,
    weight: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> tuple[Any, Any]:
    options = (stride, padding, dilation, groups)
    return (
        _cut(F, F.convolution(g, weight, None, *options), grad.shape) if needs[0] else None,
        F.convolution_weight(grad, g, tuple(weight.shape), *options) if needs[1] else None,
    )


def _cut(F: Any, x: Any, shape: Any) -> Any:
    """`x` without what lies beyond `shape`, which a transposed convolution with much output_padding leaves."""
    for dim in range(2, len(shape)):
        if x.shape[dim] != shape[dim]:
            x = F.narrow(x, dim, 0, shape[dim])
    return x


def _samples_of_input(rng: Any) -> Iterable[Sample]:
    g, w = rng.standard_normal((2, 4, 3, 2)), rng.standard_normal((4, 3, 3, 2))
    yield (g, w, (2, 3, 5, 3), (1, 1), (0, 0), (1, 1), 1), {}
    yield (g, w, (2, 6, 7, 4), (2, 3), (0, 1), (1, 2), 2), {}
    # Room for one more window in each dimension.
    yield (g, w, (2, 3, 8, 5), (1, 1), (0, 0), (2, 2), 1), {}
    yield (g[:, :, 0], w[:, :, 0], (2, 3, 4), (2,), (0,), (1,), 1), {}
    yield (g[..., None], w[..., None], (2, 3, 7, 4, 1), (2, 2, 1), (0, 0, 0), (1, 1, 1), 1), {}


def _reference_of_input(
    g: Any, w: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """The convolution is linear in its input: its columns are what it makes of unit images."""
    out = np.zeros(shape)
    for at in np.ndindex(*shape[1:]):
        unit = np.zeros((1, *shape[1:]))
        unit[(0, *at)] = 1
        response = _reference(unit, w, None, stride, padding, dilation, groups)
        response = response[(slice(None), slice(None), *[slice(n) for n in g.shape[2:]])]
        out[(slice(None), *at)] = (g * response).sum(tuple(range(1, g.ndim)))
    return out


@op(
    joint=_rule_of_input,
    samples=_samples_of_input,
    reference=_reference_of_input,
    method=False,
    grad_name="ConvolutionBackward0",
)
def convolution_input(
    F: Any,
    grad: Tensor,
    weight: Tensor,
    input_shape: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Tensor:
    """The gradient of `convolution` for its input, from the gradient `grad` of its output."""
    (n, channels, *image), size = input_shape, tuple(grad.shape[2:])
    padded = F.new_zeros(grad, (n, channels, *[m + 2 * p for m, p in zip(image, padding, strict=True)]))
    flat = F.reshape(grad, (n, groups, grad.shape[1] // groups, math.prod(size)))
    for place, window in taps(weight.shape[2:], size, stride, dilation):
        tap = F.transpose(_tap(F, weight, place, groups), 1, 2)
        padded[(slice(None), slice(None), *window)] += F.reshape(F.matmul(tap, flat), (n, channels, *size))
    inner = padded[
        (slice(None), slice(None), *[slice(p, p + m) for m, p in zip(image, padding, strict=True)])
    ]
    return F.to_contiguous(inner) if any(padding) else inner


@op(
    joint=lambda F, g, needs, grad, input, stride, padding, dilation, groups: (
        _cut(F, F.convolution(input, g, None, stride, padding, dilation, groups), grad.shape)
        if needs[0]
        else None,
        F.convolution_input(grad, g, tuple(input.shape), stride, padding, dilation, groups)
        if needs[1]
        else None,
    ),
    method=False,
)
def convolution_weight(
    F: Any,
    grad: Tensor,
    input: Tensor,
    weight_shape: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Tensor:
    """The gradient of `convolution` for its weight, from the gradient `grad` of its output."""
    n, channels = input.shape[:2]
    size = tuple(grad.shape[2:])
    padded = _padded(F, input, padding)
    out = F.new_zeros(grad, tuple(weight_shape))
    flat = F.reshape(grad, (n, groups, grad.shape[1] // groups, math.prod(size)))
    for place, window in taps(weight_shape[2:], size, stride, dilation):
        part = padded[(slice(None), slice(None), *window)]
        part = F.reshape(part, (n, groups, channels // groups, math.prod(size)))
        summed = F.sum(F.matmul(flat, F.transpose(part, 2, 3)), 0)
        out[(..., *place)] = F.reshape(summed, tuple(weight_shape[:2]))
    return out
