"""Images and volumes read at the places of a grid."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ..dispatch.declare import Sample, composite, op
from ..dispatch.dtype_lists import refuse_dtypes
from .interpolation import CUBIC

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)

Options = tuple[int, int, bool]


class _Neighbour(NamedTuple):
    """An element along one dimension: index, weight 0 where it is outside, and the gradient of the weight for the place in the grid."""

    index: Any
    weight: Any
    slope: Any


def _check(input: Tensor, grid: Tensor, interpolation_mode: int, *_: Any) -> None:
    dims = input.ndim - 2
    refuse_dtypes("grid_sampler", "bi", (input, grid))
    if dims not in (2, 3) or grid.ndim != input.ndim:
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != dims:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {dims} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(
            f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
            f"{list(input.shape)}"
        )
    if interpolation_mode == BICUBIC and dims == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if input.dtype is not grid.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has {input.dtype.name} and grid "
            f"has {grid.dtype.name}"
        )


def _adapt(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> tuple[Any, ...]:
    x, at = input._array, grid._array
    usual = len(x.shape) == len(at.shape) == 4 and x.dtype == at.dtype and x.dtype.kind == "f"
    if not (usual and x.shape[0] == at.shape[0] and at.shape[3] == 2 and x.shape[2] and x.shape[3]):
        _check(input, grid, interpolation_mode)
    return input, grid, interpolation_mode, padding_mode, bool(align_corners)


def _samples(rng: Any) -> Iterable[Sample]:
    def places(*shape: int) -> Any:
        return rng.uniform(-1.4, 1.4, shape)

    x = rng.standard_normal((2, 3, 5, 4))
    for mode, padding, corners in (
        (0, 0, False),
        (0, 1, True),
        (0, 2, False),
        (1, 0, False),
        (2, 0, True),
        (2, 2, False),
    ):
        yield (x, places(2, 2, 3, 2), mode, padding, corners), {}
    yield (rng.standard_normal((1, 2, 3, 4, 2)), places(1, 2, 1, 3, 3), 0, 2, True), {}


def _reference(x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    image = x.shape[2:]

    def inside(at: float, size: int) -> float:
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        while padding == REFLECTION and size > 1 and not low <= at <= high:
            at = 2 * low - at if at < low else 2 * high - at
        return at if padding == ZEROS else min(max(at, 0.0), size - 1.0)

    def along(at: float, size: int) -> list[tuple[float, float]]:
        at = (at + 1) / 2 * (size - 1) if corners else ((at + 1) * size - 1) / 2
        if mode == BICUBIC:
            distance = np.abs(at - (np.floor(at) + np.arange(-1, 3)))
            near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance**2 + 1
            far = ((distance - 5) * distance + 8) * distance * CUBIC - 4 * CUBIC
            return [(inside(np.floor(at) + i - 1, size), (far, near)[i in (1, 2)][i]) for i in range(4)]
        at = inside(at, size)
        left = np.floor(at)
        return [(np.round(at), 1.0)] if mode == NEAREST else [(left, left + 1 - at), (left + 1, at - left)]

    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, *place in np.ndindex(*grid.shape[:-1]):
        axes = [along(at, size) for at, size in zip(grid[(n, *place)][::-1], image, strict=True)]
        for part in itertools.product(*axes):
            at = [int(i) for i, _ in part]
            if all(0 <= i < size for i, size in zip(at, image, strict=True)):
                out[(n, slice(None), *place)] += x[(n, slice(None), *at)] * math.prod(w for _, w in part)
    return out


@op(
    joint=lambda F, g, needs, input, grid, interpolation_mode, padding_mode, align_corners: (
        F.grid_sampler_backward(g, input, grid, interpolation_mode, padding_mode, align_corners, tuple(needs))
    ),
    adapt=_adapt,
    samples=_samples,
    reference=_reference,
    grad_name=lambda shape: f"GridSampler{len(shape) - 2}DBackward0",
    method=False,
)
def grid_sampler(
    F: Any, input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`nn.functional.grid_sample` with its modes as numbers: (bilinear, nearest, bicubic) and (zeros, border, reflection)."""
    n, channels, *image = input.shape
    axes = _axes(F, image, grid, (interpolation_mode, padding_mode, align_corners))
    flat = F.reshape(input, (n, channels, math.prod(image)))
    parts = [
        F.take_places(flat, _index(chosen, image)) * _weight(chosen)[:, None]
        for chosen in itertools.product(*axes)
    ]
    return F.reshape(_sum(parts), (n, channels, *grid.shape[1:-1]))


@composite
def grid_sampler_backward(
    F: Any,
    g: Any,
    input: Any,
    grid: Any,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    needs: tuple[bool, bool],
) -> tuple[Any, Any]:
    """The gradients of `grid_sampler` for its input and its grid; None for what is not needed."""
    n, channels, *image = input.shape
    axes = _axes(F, image, grid, (interpolation_mode, padding_mode, align_corners))
    g, size = F.reshape(g, (n, channels, math.prod(grid.shape[1:-1]))), math.prod(image)
    flat, chosen = F.reshape(input, (n, channels, size)), list(itertools.product(*axes))
    places = [_index(parts, image) for parts in chosen]
    g_input = g_grid = None
    if needs[0]:
        spread = [
            F.add_places(g * _weight(parts)[:, None], at, size)
            for parts, at in zip(chosen, places, strict=True)
        ]
        g_input = F.reshape(_sum(spread), tuple(input.shape))
    if needs[1]:
        g_weights = [F.sum(g * F.take_places(flat, at), 1) for at in places]
        along = [
            _sum([w * _weight(parts, i) for w, parts in zip(g_weights, chosen, strict=True)])
            for i in reversed(range(len(image)))
        ]
        g_grid = F.reshape(F.stack(along, 2), tuple(grid.shape))
    return g_input, g_grid


def _sum(parts: list[Any]) -> Any:
    return functools.reduce(operator.add, parts)


def _axes(F: Any, image: Sequence[int], grid: Any, options: Options) -> list[list[_Neighbour]]:
    """The neighbours of every place (N, P) along each dimension of the image."""
    dims = len(image)
    flat = F.reshape(grid, (grid.shape[0], math.prod(grid.shape[1:-1]), dims))
    # The last number of a place belongs to the first dimension of the image.
    return [_neighbours(F, flat[:, :, dims - 1 - i], size, options) for i, size in enumerate(image)]


def _weight(chosen: Sequence[_Neighbour], changing: int | None = None) -> Any:
    """(N, P): the weight of one element, or its gradient for the place along the dimension `changing`."""
    return math.prod(part.slope if i == changing else part.weight for i, part in enumerate(chosen))


def _index(chosen: Sequence[_Neighbour], image: Sequence[int]) -> Any:
    """(N, P): the index of one element in the flattened image."""
    index = chosen[0].index
    for along, size in zip(chosen[1:], image[1:], strict=True):
        index = index * size + along.index
    return index


def _neighbours(F: Any, x: Any, size: int, options: Options) -> list[_Neighbour]:
    """What a place `x` in [-1, 1] mixes along a dimension of length `size`."""
    mode, padding, corners = options
    place, scale = (
        ((x + 1) * ((size - 1) / 2), (size - 1) / 2) if corners else (((x + 1) * size - 1) / 2, size / 2)
    )
    if mode == BICUBIC:
        left = F.floor(place)
        found = []
        for i in range(4):
            weight, slope = _cubic(place - left, i)
            found.append((_inside(F, left + (i - 1), size, padding, corners)[0], weight, slope * scale))
    else:
        place, slope = _inside(F, place, size, padding, corners)
        if mode == NEAREST:
            found = [(F.round(place), F.full_like(place, 1), F.full_like(place, 0))]
        else:
            left = F.floor(place)
            right, slope = place - left, slope * scale
            found = [(left, 1 - right, -slope), (left + 1, right, slope)]
    parts = []
    for at, weight, slope in found:
        there = (at >= 0) & (at <= size - 1)  # False for NaN too
        index, kept = F.cast(F.where(there, at, 0.0), dtypes.int64), F.cast(there, x.dtype)
        # A weight that is NaN stays so, as in PyTorch, where the elements outside are zeros.
        parts.append(_Neighbour(index, weight * kept, slope * kept))
    return parts


def _cubic(t: Any, i: int) -> tuple[Any, Any]:
    """The weight of neighbour `i`, of which number 1 is `t` to the left, and its derivative by `t`."""
    d, sign = (t + (1 - i), 1) if i < 2 else ((i - 1) - t, -1)
    if i in (1, 2):
        return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1, (3 * (CUBIC + 2) * d - 2 * (CUBIC + 3)) * d * sign
    return ((d - 5) * d + 8) * d * CUBIC - 4 * CUBIC, ((3 * d - 10) * d + 8) * (CUBIC * sign)


def _inside(F: Any, x: Any, size: int, padding: int, corners: bool) -> tuple[Any, Any]:
    """`x` moved to where there are elements, and the derivative of that: like PyTorch's 0 at the first and the last too."""
    slope: Any = F.full_like(x, 1)
    if padding == ZEROS:
        return x, slope
    if padding == REFLECTION:  # at the outermost centres, or edges, as often as it takes
        low, span = (0.0, size - 1) if corners else (-0.5, size)
        if span == 0:
            return x * 0.0, slope * 0.0
        below = x < low
        distance = F.where(below, low - x, x - low)
        flips = F.floor(distance / span)
        rest = distance - flips * span
        even = F.floor(flips / 2) * 2 == flips
        x = F.where(even, rest, span - rest) + low
        slope = F.where(below == even, -1.0, slope)
    within = (x > 0) & (x < size - 1)
    edge = F.cast(x > 0, x.dtype) * (size - 1)  # NaN is at the first element
    return F.where(within, x, edge), F.where(within, slope, 0.0)
