"""`make_grid` and `save_image` of torchvision.utils: many images as one, and image files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO

from ... import Tensor, no_grad, stack
from ...backend import dtype as dtypes
from . import functional as F


@no_grad()
def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """One picture (C, H', W') of images (N, C, H, W), or of a list of images (C, H, W), `nrow` beside each other.

    `padding` pixels of `pad_value` lie around each image; a single image comes back as it is. Grey images become
    three equal channels. With `normalize` the values of `value_range`, of the batch, or (`scale_each`) of each
    image are spread to 0 … 1. No gradient flows through the picture.
    """
    images = _batch(tensor)
    if normalize:
        if value_range is not None and not isinstance(value_range, tuple):
            raise TypeError("make_grid: value_range has to be a tuple (min, max) of numbers")
        images = (
            stack([_spread(image, value_range) for image in images])
            if scale_each
            else _spread(images, value_range)
        )
    count, channels, height, width = images.shape
    if count == 1:
        return images[0]
    columns = min(nrow, count)
    rows = -(-count // columns)
    down, right = height + padding, width + padding
    grid = images.new_full((channels, rows * down + padding, columns * right + padding), pad_value)
    for k, image in enumerate(images):
        top, left = k // columns * down + padding, k % columns * right + padding
        grid[:, top : top + height, left : left + width] = image
    return grid


@no_grad()
def save_image(
    tensor: Tensor | Sequence[Tensor],
    fp: str | os.PathLike[str] | BinaryIO,
    format: str | None = None,
    **kwargs: Any,
) -> None:
    """Write images with values in 0 … 1 as one picture to the file `fp`; `kwargs` are those of `make_grid`.

    Needs Pillow. The ending of the file's name says the format, or else `format`.
    """
    pixels = (make_grid(tensor, **kwargs) * 255 + 0.5).clamp(0, 255).cpu().to(dtypes.uint8)
    F.to_pil_image(pixels).save(fp, format=format)


def _batch(images: Any) -> Tensor:
    """Images (N, C, H, W) with three channels where there was one."""
    if not isinstance(images, Tensor):
        if not isinstance(images, (list, tuple)) or not all(isinstance(i, Tensor) for i in images):
            raise TypeError(f"make_grid: tensor or list of tensors expected, got {type(images)}")
        images = stack(list(images))
    if not 2 <= images.ndim <= 4:
        raise ValueError(
            f"make_grid: images are (N, C, H, W), (C, H, W) or (H, W); got shape {tuple(images.shape)}"
        )
    images = images.reshape(*(1,) * (4 - images.ndim), *images.shape)
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images


def _spread(image: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    """`image` with `value_range`, or else its own range, mapped to 0 … 1."""
    low, high = value_range or (float(image.min()), float(image.max()))
    return (image.clamp(low, high) - low) / max(high - low, 1e-5)
