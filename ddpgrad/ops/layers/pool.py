"""Max and average pooling over windows that slide along the spatial dimensions."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...backend.windows import Ints, pooled_size
from ...core.tensor import Tensor
from ..dispatch.declare import composite, op
from . import resample


def check_windows(
    name: str, input: Tensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> None:
    """`RuntimeError` for windows that cannot slide over the last dimensions of `input`."""
    dims = len(kernel)
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{name}(): Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got: {list(input.shape)}"
        )
    for argument, numbers in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        if min(numbers) <= 0:
            zero = " (stride should not be zero)" if 0 in stride else ""
            raise RuntimeError(
                f"{name}(): {argument} must be greater than zero, but got {min(numbers)}{zero}"
            )
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"{name}(): pad must be non-negative, but got pad: {p}")
        if p > (d * (k - 1) + 1) // 2:
            raise RuntimeError(
                f"{name}(): pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} "
                f"and dilation={d}"
            )
    if 0 in input.shape[-dims - 1 :]:
        raise RuntimeError(
            f"{name}(): Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch size for "
            f"input: Expected input's non-batch dimensions to have positive length, but got {list(input.shape)}"
        )
    for k, s, p, d, n in zip(kernel, stride, padding, dilation, input.shape[-dims:], strict=True):
        # In ceil_mode the one window that there is may reach beyond the image, by less than a step.
        if n + 2 * p + (s - 1 if ceil_mode else 0) < d * (k - 1) + 1:
            raise RuntimeError(
                f"{name}(): Output size is too small. Invalid computed output size: "
                f"{(n + 2 * p - d * (k - 1) - 1) // s + 1}: kernel {kernel} is larger than the padded input "
                f"{list(input.shape)}"
            )


def _adapt_max(
    input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool = False
) -> tuple[Any, ...]:
    check_windows(f"max_pool{len(kernel_size)}d", input, kernel_size, stride, padding, dilation, ceil_mode)
    return input, kernel_size, stride, padding, dilation, bool(ceil_mode)


def _reference_max(
    x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool = False
) -> Any:
    dims = len(kernel)
    lead, image = x.shape[:-dims], x.shape[-dims:]
    size = pooled_size(image, kernel, stride, padding, dilation, ceil_mode)
    out, where = np.empty((*lead, *size)), np.empty((*lead, *size), np.int64)
    for place in np.ndindex(*lead, *size):
        best, at = -np.inf, 0
        for tap in np.ndindex(*kernel):
            options = zip(place[-dims:], stride, padding, tap, dilation, strict=True)
            y = [a * s - p + t * d for a, s, p, t, d in options]
            if all(0 <= a < n for a, n in zip(y, image, strict=True)) and x[(*place[:-dims], *y)] > best:
                best, at = x[(*place[:-dims], *y)], int(np.ravel_multi_index(y, image))
        out[place], where[place] = best, at
    return out, where


def _different(rng: Any, *shape: int) -> Any:
    """Numbers without ties, so that every window has one largest element."""
    return rng.permutation(math.prod(shape)).reshape(shape) / 9.0


@op(
    grads={
        "input": lambda F, g, input_shape, indices, kernel_size: max_pool_backward(
            F, g, input_shape, indices, len(kernel_size)
        )
    },
    outputs=2,
    extras=("indices",),
    adapt=_adapt_max,
    samples=lambda rng: [
        ((_different(rng, 2, 2, 5, 6), (2, 2), (2, 2), (0, 0), (1, 1)), {}),
        ((_different(rng, 2, 2, 5, 6), (3, 3), (2, 2), (1, 1), (1, 1)), {}),
        ((_different(rng, 2, 5, 6), (2, 3), (2, 1), (0, 1), (2, 1)), {"ceil_mode": True}),
        ((_different(rng, 2, 2, 7), (3,), (2,), (1,), (1,)), {"ceil_mode": True}),
        ((_different(rng, 1, 2, 4, 3, 5), (2, 2, 3), (2, 1, 2), (1, 0, 1), (1, 2, 1)), {}),
    ],
    reference=_reference_max,
    method=False,
    grad_name=lambda kernel_size: f"MaxPool{len(kernel_size)}DWithIndicesBackward0",
)
def max_pool(
    F: Any,
    input: Tensor,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest element of each window of `input` (*, *size), and its place in the flattened image."""
    dims = len(kernel_size)
    lead, image = tuple(input.shape[:-dims]), tuple(input.shape[-dims:])
    size = pooled_size(image, kernel_size, stride, padding, dilation, ceil_mode)
    reach = []
    for n, count, k, s, p, d in zip(image, size, kernel_size, stride, padding, dilation, strict=True):
        met = np.arange(count)[:, None] * s - p + np.arange(k) * d
        # What lies outside of the image counts as the next tap inside.
        met += np.where(met < 0, -(met // d) * d, 0)
        met -= np.where(met >= n, ((met - n) // d + 1) * d, 0)
        reach.append(np.clip(met, 0, n - 1))
    flat = F.reshape(input, (math.prod(lead), math.prod(image)))
    values, indices = F.largest_of_places(flat, flat_places(reach, image)[None])
    return F.reshape(values, (*lead, *size)), F.reshape(indices, (*lead, *size))


def flat_places(reach: list[Any], image: Ints) -> Any:
    """(windows, taps): places in a flattened image, from those (windows, taps) along each dimension."""
    flat = np.zeros((1, 1), np.int64)
    for along, n in zip(reach, image, strict=True):
        flat = flat[:, None, :, None] * n + along[None, :, None, :]
        flat = flat.reshape(flat.shape[0] * flat.shape[1], -1)
    return flat


@composite
def largest_of_places(F: Any, flat: Any, places: Any) -> tuple[Any, Any]:
    """The largest element of each window of `flat` (B, S), and where: both (B, windows).

    places: (B or 1, windows, taps), a host array.
    """
    planes, windows, many = places.shape
    table = F.asarray(places)
    if planes == 1:  # one table for all, which is not to be copied for each
        met = F.getitem(flat, (slice(None), table[0]))
    else:
        met = F.reshape(F.gather(flat, 1, F.reshape(table, (planes, windows * many))), places.shape)
    best = F.argmax(met, 2, True)
    values = F.squeeze(F.gather(met, 2, best), (2,))
    if planes == 1:
        return values, F.getitem(table[0], (F.asarray(np.arange(windows)), F.squeeze(best, (2,))))
    return values, F.squeeze(F.gather(table, 2, best), (2,))


def max_pool_backward(F: Any, g: Any, input_shape: Ints, indices: Any, dims: int) -> Any:
    """`g` added at the places in the flattened image that were largest; zeros elsewhere."""
    lead, image = input_shape[:-dims], input_shape[-dims:]
    planes, windows = math.prod(lead), math.prod(g.shape[-dims:])
    index = F.reshape(indices, (planes, windows))
    return F.reshape(F.add_places(F.reshape(g, (planes, 1, windows)), index, math.prod(image)), input_shape)


@functools.lru_cache(maxsize=64)
def mean_bands(
    size: int,
    kernel: int,
    stride: int,
    padding: int,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> resample.Bands:
    """The means of windows along one dimension, or their sums over `divisor`."""
    (count,) = pooled_size((size,), (kernel,), (stride,), (padding,), (1,), ceil_mode)
    start = np.arange(count) * stride - padding
    end = np.minimum(start + kernel, size + padding)
    inside, until = np.maximum(start, 0), np.minimum(end, size)
    counted = divisor or (end - start if count_include_pad else until - inside)
    return resample.windows(inside, until, counted, size)
