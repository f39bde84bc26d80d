"""Sampling of images and volumes on a grid, and affine grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.errors import warn_program
from ...core.tensor import Tensor
from ...ops.creation.factories import zeros
from ...ops.creation.spaced import linspace
from ...ops.layers.grid import grid_sampler
from ...ops.linalg.matrix import matmul
from ...ops.shape.shape import expand, reshape, transpose
from ...ops.shape.stacking import stack

GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


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
    _say_that_corners_are_free(align_corners)
    return grid_sampler(
        input,
        grid,
        GRID_SAMPLE_INTERPOLATION_MODES[mode],
        GRID_SAMPLE_PADDING_MODES[padding_mode],
        bool(align_corners),
    )


def _say_that_corners_are_free(align_corners: bool | None) -> None:
    if align_corners is None:
        warn_program(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
            "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details."
        )


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
