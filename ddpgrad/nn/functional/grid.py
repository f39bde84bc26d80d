"""Sampling of images and volumes on a grid, and affine grids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ...backend import dtype as dtypes
from ...core.errors import warn_program
from ...core.overrides import overridable
from ...core.tensor import Tensor
from ...ops.creation.factories import zeros
from ...ops.creation.spaced import linspace
from ...ops.dispatch.dtype_lists import refuse_dtypes
from ...ops.elementwise.binary import eq, remainder, where
from ...ops.elementwise.conversion import to
from ...ops.elementwise.unary import floor, round
from ...ops.layers.interpolation import CUBIC
from ...ops.layers.places import mix_places
from ...ops.linalg.matrix import matmul, nothing_of
from ...ops.shape.shape import expand, reshape, transpose
from ...ops.shape.stacking import stack

GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}

# Along one dimension: (whole-numbered place, its weight) of each neighbour that is mixed.
Neighbours = list[tuple[Tensor, Tensor]]


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """`input` (N, C, H, W) read at the places `grid` (N, H', W', 2): (N, C, H', W'); or with depth, (..., 3).

    A place is (x, y) or (x, y, z) in [-1, 1], which is from edge to edge, or from centre to centre
    of the outermost elements with align_corners. mode: "bilinear", "nearest" or "bicubic".
    padding_mode: what is outside: "zeros", the "border"'s elements, or a "reflection".

    Source: https://pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html
    """
    if mode not in GRID_SAMPLE_INTERPOLATION_MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in GRID_SAMPLE_PADDING_MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    dims = input.ndim - 2
    _check(input, grid, dims, mode)
    if input.dtype in (dtypes.float16, dtypes.bfloat16):  # coordinates need the precision
        wide = [to(x, dtypes.float32) for x in (input, grid)]
        return to(grid_sample(wide[0], wide[1], mode, padding_mode, align_corners), input.dtype)
    _say_that_corners_are_free(align_corners)
    n, channels, *image = input.shape
    corners = bool(align_corners)
    flat_grid = reshape(grid, (n, math.prod(grid.shape[1:-1]), dims))
    axes: list[Neighbours] = []
    for i, size in enumerate(image):
        # The last number of a place belongs to the first dimension of the image.
        place = _to_elements(flat_grid[:, :, dims - 1 - i], size, corners)

        def inside(x: Tensor, size: int = size) -> Tensor:
            return _PADDING[padding_mode](x, size, corners)

        axes.append([_within(x, w, size) for x, w in _NEIGHBOURS[mode](place, inside)])
    flat = reshape(input, (n, channels, math.prod(image)))
    chosen = [_neighbour(part, image) for part in itertools.product(*axes)]
    out = mix_places(flat, stack([w for _, w in chosen], 1), stack([index for index, _ in chosen], 1))
    return reshape(out, (n, channels, *grid.shape[1:-1]))


@overridable
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sample` with its modes as numbers: (bilinear, nearest, bicubic) and (zeros, border, reflection)."""
    modes = tuple(GRID_SAMPLE_INTERPOLATION_MODES)[interpolation_mode], tuple(_PADDING)[padding_mode]
    return grid_sample(input, grid, *modes, align_corners)


def _say_that_corners_are_free(align_corners: bool | None) -> None:
    if align_corners is None:
        warn_program(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
            "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details."
        )


def _check(input: Tensor, grid: Tensor, dims: int, mode: str) -> None:
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
    if mode == "bicubic" and dims == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if input.dtype is not grid.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has {input.dtype.name} and grid "
            f"has {grid.dtype.name}"
        )


def _to_elements(x: Tensor, size: int, corners: bool) -> Tensor:
    """From [-1, 1] to elements of a dimension of length `size`."""
    return (x + 1) * ((size - 1) / 2) if corners else ((x + 1) * size - 1) / 2


def _within(x: Tensor, weight: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(index, weight) of neighbours at `x`; of weight 0 where these are outside of a dimension of length `size`.

    A weight that is NaN stays so, as in PyTorch, where the elements outside are zeros.
    """
    there = (x >= 0) & (x <= size - 1)  # False for NaN too
    return to(where(there, x.detach(), 0.0), dtypes.int64), weight * to(there, weight.dtype)


def _neighbour(chosen: Sequence[tuple[Tensor, Tensor]], image: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(index, weight) of one neighbour of every place, from those along each dimension: (N, P)."""
    index, weight = chosen[0]
    for (along, w), size in zip(chosen[1:], image[1:], strict=True):
        index, weight = index * size + along, weight * w
    return index, weight


def _nearest(place: Tensor, inside: Callable[[Tensor], Tensor]) -> Neighbours:
    return [
        (round(inside(place)), nothing_of(place) + 1)
    ]  # of weight 1, with the gradient of rounding, which is 0


def _linear(place: Tensor, inside: Callable[[Tensor], Tensor]) -> Neighbours:
    x = inside(place)
    left = floor(x).detach()
    right = x - left
    return [(left, 1 - right), (left + 1, right)]


def _cubic(place: Tensor, inside: Callable[[Tensor], Tensor]) -> Neighbours:
    left = floor(place).detach()
    t = place - left
    near = [((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((d - 5) * d + 8) * d * CUBIC - 4 * CUBIC for d in (t + 1, 2 - t)]
    weights = (far[0], near[0], near[1], far[1])
    return [(inside(left + i), w) for i, w in zip(range(-1, 3), weights, strict=True)]


def _limit(x: Tensor, size: int) -> Tensor:
    """`x` moved to the nearest element, NaN to the first; like PyTorch's, the gradient is 0 at the first and the last too."""
    return where((x > 0) & (x < size - 1), x, to(x.detach() > 0, x.dtype) * (size - 1))


def _reflect(x: Tensor, size: int, corners: bool) -> Tensor:
    """`x` mirrored at the outermost centres, or edges, as often as it takes."""
    low, span = (0.0, size - 1) if corners else (-0.5, size)
    if span == 0:
        return x * 0.0
    # The distance from the lower mirror, whose gradient at 0 is 1.
    distance = where(x.detach() < low, low - x, x - low)
    flips = floor(distance.detach() / span)
    rest = distance - flips * span
    return _limit(where(eq(remainder(flips, 2), 0), rest, span - rest) + low, size)


_PADDING: dict[str, Callable[[Tensor, int, bool], Tensor]] = {
    "zeros": lambda x, size, corners: x,
    "border": lambda x, size, corners: _limit(x, size),
    "reflection": _reflect,
}
_NEIGHBOURS = {"nearest": _nearest, "bilinear": _linear, "bicubic": _cubic}


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The places that `grid_sample` reads to move an image of `size` (N, C, H, W) by `theta` (N, 2, 3).

    The result is (N, H, W, 2); for volumes, size (N, C, D, H, W), theta (N, 3, 4) and (N, D, H, W, 3).
    """
    if theta.dtype.category < 2:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype!r}")
    dims = len(size) - 2
    if dims not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            f"Got size {tuple(size)}."
        )
    if theta.ndim == 3 and theta.shape[0] != size[0]:
        raise RuntimeError(f"affine_grid(): theta has {theta.shape[0]} matrices for {size[0]} images")
    if tuple(theta.shape[1:]) != (dims, dims + 1) or theta.ndim != 3:
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {tuple(size)}. Got "
            f"{tuple(theta.shape)}."
        )
    _say_that_corners_are_free(align_corners)
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    if align_corners and 1 in size[2:]:
        warn_program(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. This is "
            "not an intended use case of affine_grid. See the documentation of affine_grid for details."
        )
    image = list(size[2:])
    coordinates = []
    for i, n in enumerate(image):
        along = reshape(
            _from_edge_to_edge(n, bool(align_corners), theta), [-1 if d == i else 1 for d in range(dims)]
        )
        coordinates.insert(0, expand(along, *image))
    ones: Any = theta.new_ones(tuple(image))
    places = reshape(stack([*coordinates, ones], dims), (math.prod(image), dims + 1))
    return reshape(matmul(places, transpose(theta, 1, 2)), (theta.shape[0], *image, dims))


def _from_edge_to_edge(n: int, corners: bool, like: Tensor) -> Tensor:
    """`n` places in [-1, 1]: the centres of as many equal parts, or with `corners` from end to end."""
    if n <= 1:
        return zeros(n, dtype=like.dtype, device=like.device)
    places = linspace(-1.0, 1.0, n, dtype=like.dtype, device=like.device)
    return places if corners else places * (n - 1) / n  # in this order, as PyTorch rounds
