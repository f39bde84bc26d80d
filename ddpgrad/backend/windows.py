"""Arithmetic of windows that slide along the spatial dimensions: their number, and the elements in each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

Ints = tuple[int, ...]


def per_dimension(value: Any, dims: int, name: str = "option") -> Ints:
    """`value`, one whole number for all dimensions or one each, as `dims` numbers."""
    try:
        if not isinstance(value, (tuple, list)):
            return (index(value),) * dims
        if len(value) == dims:
            return tuple([index(v) for v in value])
        if len(value) == 1:
            return (index(value[0]),) * dims
    except TypeError:
        raise TypeError(f"{name} must be a single int or a tuple of {dims} ints, got {value!r}") from None
    raise RuntimeError(
        f"expected {name} to be a single integer value or a list of {dims} values, but got {name}={list(value)}"
    )


def convolved_size(
    size: Sequence[int], kernel: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> tuple[int, ...]:
    """How many windows fit into each dimension of an image of `size`."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def pooled_size(
    size: Sequence[int], kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[int, ...]:
    """As `convolved_size`; with `ceil_mode` a last window may reach over the edge."""
    out = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        count = (span + (s - 1 if ceil_mode else 0)) // s + 1
        # The last window begins inside of the image or of the padding before it.
        out.append(count - 1 if ceil_mode and (count - 1) * s >= n + p else count)
    return tuple(out)


def taps(kernel: Sequence[int], size: Ints, stride: Ints, dilation: Ints) -> Iterator[tuple[Any, Any]]:
    """(place in the kernel, slices of the padded image that it meets) for windows of an output of `size`."""
    for place in itertools.product(*[range(k) for k in kernel]):
        starts = [i * d for i, d in zip(place, dilation, strict=True)]
        yield (
            place,
            tuple(
                slice(a, a + s * (n - 1) + 1 if n else a, s)
                for a, n, s in zip(starts, size, stride, strict=True)
            ),
        )


def edges(padding: Ints, size: Sequence[int] = (), need: Sequence[int] = ()) -> tuple[tuple[int, int], ...]:
    """Widths for `constant_pad` of (N, C, *spatial) by `padding`; at the end enough to reach `need`, if given."""
    if not need:
        return ((0, 0), (0, 0), *((p, p) for p in padding))
    after = [max(p, m - n - p) for n, p, m in zip(size, padding, need, strict=True)]
    return ((0, 0), (0, 0), *zip(padding, after, strict=True))
