"""How often integers occur, and histograms. No derivative is written for what is here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...backend import dtype as dtypes
from ...backend.registry import backend_for
from ...core import return_types
from ...core.taping import untaped
from ...core.tensor import Tensor, wrap
from ..creation.spaced import linspace
from ..dispatch.tensor_function import tensor_function
from .reduce import widened


@tensor_function()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, … occurs in a vector of integers, or the sum of the weights of its occurrences."""
    array = input._array
    if input.dtype.category != 1:
        raise NotImplementedError(
            f"\"bincount_cpu\" not implemented for '{input.dtype.scalar_type}'; give integers"
        )
    if minlength < 0:
        raise RuntimeError(f"bincount(): minlength should be >= 0, got {minlength}")
    if input.ndim != 1 or (input.numel() and bool(array.min() < 0)):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError(
            "bincount(): weights should be 1-d and have the same length as input, got shapes "
            f"{list(weights.shape)} and {list(input.shape)}"
        )
    F = backend_for(array)
    if weights is None:
        return wrap(F.cast(F.bincount(array, None, minlength), dtypes.int64))
    kind = dtypes.float32 if weights.dtype is dtypes.float32 else dtypes.float64
    return wrap(F.cast(F.bincount(array, F.cast(weights._array, kind), minlength), kind))


def _range(name: str, array: Any, low: float, high: float, margin: float) -> tuple[float, float]:
    """The limits of a histogram: those given, or of the data where both are equal; `margin` around a single value."""
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.{name}: range{' of' * (name == 'histc')} [{low}, {high}] is not finite")
    if low > high:
        said = "max must be larger than min" if name == "histc" else "min should not exceed max"
        raise RuntimeError(f"torch.{name}: {said}, but got min {low} and max {high}")
    return (low - margin, high + margin) if low == high else (low, high)


@tensor_function(out=True)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of `bins` equal parts of [min, max]; of the data's range when both are equal."""
    if input.dtype.category != 2:
        raise NotImplementedError(
            f"\"histogram_cpu\" not implemented for '{input.dtype.scalar_type}'; use x.float()"
        )
    if bins <= 0:
        raise RuntimeError(f"torch.histc: bins must be > 0, but got {bins}")
    if input.is_meta:
        return input.new_empty((bins,))
    F = backend_for(input._array)
    array = F.cast(F.reshape(input._array, (-1,)), widened(input._array.dtype))
    low, high = _range("histc", array, min, max, 1)
    inside = array[(array >= low) & (array <= high)]
    place = F.cast((inside - low) / (high - low) * bins, dtypes.int64)
    return wrap(F.cast(F.bincount(F.minimum(place, F.full_like(place, bins - 1)), None, bins), input.dtype))


@tensor_function(out=True)
def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> return_types.histogram:
    """(how many elements, or their weights, lie in each bin; the edges of the bins).

    bins: a number of equal bins over `range`, or of the data, or the edges. A bin contains its
    left edge, and the last one its right edge too. density: divided by the total and the widths.
    """
    flat = input._array.reshape(-1, 1)
    edges = [bins.detach().clone()] if isinstance(bins, Tensor) else [int(bins)]
    hist, found = _histogram("histogram", input, flat, edges, range, weight, density)
    return return_types.histogram(hist, found[0])


@tensor_function(method=False)
def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> return_types.histogramdd:
    """(histogram of points (…, N) over N dimensions, the edges in each): as `histogram`.

    bins: one number for all dimensions, N numbers, or N vectors of edges; range: 2 N numbers.
    """
    if input.ndim < 2:
        raise RuntimeError(
            f"torch.histogramdd: input tensor should have at least 2 dimensions, got {input.ndim}"
        )
    points = input._array.reshape(-1, input.shape[-1])
    edges = [int(bins)] * points.shape[1] if isinstance(bins, int) else list(bins)
    if len(edges) != points.shape[1]:
        raise RuntimeError(
            "torch.histogramdd: The size of bins must be equal to the innermost dimension of the input, "
            f"{points.shape[1]}, but got {len(edges)}"
        )
    hist, found = _histogram("histogramdd", input, points, edges, range, weight, density)
    return return_types.histogramdd(hist, tuple(found))


def _histogram(
    name: str,
    input: Tensor,
    points: Any,
    bins: Sequence[Any],
    range: Sequence[float] | None,
    weight: Tensor | None,
    density: bool,
) -> tuple[Tensor, list[Tensor]]:
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{input.dtype.scalar_type}'; use x.float()"
        )
    if range is not None and isinstance(bins[0], Tensor):
        raise TypeError(f"{name}() received an invalid combination of arguments: edges of bins, and a range")
    for given in bins:
        if isinstance(given, Tensor):
            if given.ndim != 1:
                raise RuntimeError(
                    f"torch.{name}: bins tensor should have one dimension, but got {given.ndim}"
                )
            if not given.numel():
                raise RuntimeError(f"torch.{name}: bins tensor should have at least 1 element, but got 0")
        elif given <= 0:
            raise RuntimeError(f"torch.{name}: bins must be > 0, but got {given}")
    if range is not None and len(range) != 2 * len(bins):
        raise RuntimeError(f"torch.{name}: for a {len(bins)}-dimensional histogram range should have "
                           f"{2 * len(bins)} elements, but got {len(range)}")  # fmt: skip
    untaped(f"{name} reads elements")
    for what, other in (("weight tensor", weight), *(("bins tensors", given) for given in bins)):
        if isinstance(other, Tensor) and other.dtype is not input.dtype:
            raise RuntimeError(
                f"torch.{name}: input tensor and {what} should have the same dtype, but got {input.dtype.name} and "
                f"{other.dtype.name}"
            )
    if weight is not None and weight.numel() != points.shape[0]:
        raise RuntimeError(
            f"torch.{name}: if weight tensor is provided it should have the same shape as the input tensor excluding its "
            f"innermost dimension: one weight for each of {points.shape[0]}, but got {list(weight.shape)}"
        )
    F = backend_for(points)
    place: Any = 0
    inside: Any = F.full((points.shape[0],), True, dtypes.bool_, points)
    edges: list[Tensor] = []
    for d, given in enumerate(bins):
        column = F.asarray(points[:, d])
        if isinstance(given, Tensor):
            edge = given
        else:
            low, high = (0.0, 0.0) if range is None else (range[2 * d], range[2 * d + 1])
            low, high = (
                _range(name, column, low, high, 0.5) if column.size or range is not None else (0.0, 1.0)
            )
            edge = linspace(low, high, given + 1, dtype=input.dtype, device=input.device)
        edges.append(edge)
        parts = edge.shape[0] - 1
        inside &= (column >= edge._array[0]) & (column <= edge._array[-1])
        bin = F.searchsorted(edge._array, column, True) - 1
        place = place * parts + F.clamp(bin, 0, parts - 1)
    sizes = tuple(e.shape[0] - 1 for e in edges)
    weights = None if weight is None else F.reshape(weight._array, (-1,))[inside]
    counts = F.cast(F.bincount(place[inside], weights, math.prod(sizes)), input.dtype)
    hist = F.reshape(counts, sizes)
    if density:
        hist = hist / hist.sum()
        for d, edge in enumerate(edges):
            widths = edge._array[1:] - edge._array[:-1]
            hist = hist / F.reshape(widths, tuple(-1 if i == d else 1 for i, _ in enumerate(sizes)))
    return wrap(hist), edges
