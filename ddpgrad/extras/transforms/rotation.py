"""Rotation of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor, wrap
from ...nn.functional.grid import grid_sample
from ...ops.shape.stacking import cat
from .image import InterpolationMode, check, get_dimensions


def rotate(
    img: Any,
    angle: float,
    interpolation: InterpolationMode = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
) -> Any:
    """The image turned by `angle` degrees, against the clock, around `center` (x, y), by default its middle.

    expand: the result is as large as it must be to show all corners. fill: what lies outside, one number or one
    for each channel; black by default.
    """
    check("rotate", img)
    values = [0] if fill is None else [fill] if isinstance(fill, (int, float)) else list(fill)
    channels = get_dimensions(img)[0]
    if len(values) not in (1, channels):
        raise ValueError(f"fill has {len(values)} values, but the image has {channels} channels")
    values = values * channels if len(values) == 1 else values
    if isinstance(img, Tensor):
        return _rotate_tensor(img, angle, interpolation, expand, center, values)
    from PIL import Image

    color = values[0] if channels == 1 else tuple(int(v) for v in values)
    return img.rotate(angle, Image.Resampling[interpolation.name], expand, center, fillcolor=color)


def _rotate_tensor(
    img: Tensor,
    angle: float,
    interpolation: InterpolationMode,
    expand: bool,
    center: Sequence[float] | None,
    fill: Sequence[float],
) -> Tensor:
    if interpolation not in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR):
        raise ValueError(f"rotate: tensors are rotated by NEAREST or BILINEAR, not {interpolation}")
    channels, h, w = get_dimensions(img)
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = (0.0, 0.0) if center is None else (center[0] - w * 0.5, center[1] - h * 0.5)
    # Where a pixel of the result comes from, both counted from the middle.
    matrix = np.array([[cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y]])
    height, width = _whole(matrix, h, w) if expand else (h, w)
    ys, xs = np.meshgrid(
        np.arange(height) - (height - 1) * 0.5, np.arange(width) - (width - 1) * 0.5, indexing="ij"
    )
    places = np.stack([xs, ys, np.ones_like(xs)], -1).astype(np.float32)
    grid = places @ (matrix.T / [0.5 * w, 0.5 * h]).astype(np.float32)
    planes = img.reshape(-1, channels, h, w)
    floats = planes if planes.is_floating_point() else planes.to(dtypes.float32)
    seen = floats.new_ones((planes.shape[0], 1, h, w))  # 1 where the result shows the image
    grids = wrap(grid.astype(floats.dtype.numpy)).to(img.device).expand(planes.shape[0], -1, -1, -1)
    turned = grid_sample(cat([floats, seen], 1), grids, mode=interpolation.value, align_corners=False)
    out, seen = turned[:, :channels], turned[:, channels:]
    color = floats.new_tensor(list(fill)).reshape(1, channels, 1, 1)
    if interpolation is InterpolationMode.NEAREST:
        out = out.where(seen >= 0.5, color)
    else:
        out = out * seen + (1.0 - seen) * color
    out = out if img.is_floating_point() else out.round().to(img.dtype)
    return out.reshape(*img.shape[:-2], height, width)


def _whole(matrix: np.ndarray, h: int, w: int) -> tuple[int, int]:
    """(height, width) that the turned corners need; a ten-thousandth of a pixel more is no pixel."""
    corners = np.array(
        [[-0.5 * w, -0.5 * h, 1], [-0.5 * w, 0.5 * h, 1], [0.5 * w, 0.5 * h, 1], [0.5 * w, -0.5 * h, 1]]
    )
    moved = corners.astype(np.float32) @ matrix.T.astype(np.float32) + np.array(
        [w * 0.5, h * 0.5], np.float32
    )
    low, high = (
        np.trunc(edge / np.float32(1e-4)) * np.float32(1e-4) for edge in (moved.min(0), moved.max(0))
    )
    width, height = np.ceil(high) - np.floor(low)
    return int(height), int(width)
