"""Brightness, contrast, saturation and hue of an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import Tensor, mean, stack
from ...backend import dtype as dtypes
from ...core.tensor import wrap
from .image import check, get_dimensions, is_pil

_LUMA = (0.2989, 0.587, 0.114)  # red, green, blue (ITU-R BT.601), rounded as torchvision does


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Brightness, in one channel or the same in three."""
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    channels = get_dimensions(img)[0]
    if not isinstance(img, Tensor):
        gray = img.convert("L")
        return gray if num_output_channels == 1 else gray.convert("RGB")
    if channels not in (1, 3):
        raise TypeError(f"Input image tensor permitted channel values are 1 or 3, but found {channels}")
    if channels == 3:
        weights = wrap(np.array(_LUMA, dtype=np.float32).reshape(3, 1, 1)).to(img.device)
        img = (img * weights).sum(-3, keepdim=True).to(img.dtype)
    return img if num_output_channels == 1 else img.expand(*img.shape[:-3], 3, *img.shape[-2:])


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """The image times a factor: 0 is black, 1 the image itself."""
    return _adjust(img, brightness_factor, "Brightness", lambda image: 0 * image)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """The distance of each pixel from the image's mean brightness, times a factor."""
    return _adjust(img, contrast_factor, "Contrast", _mean_brightness)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """The distance of each pixel from its gray, times a factor; gray images stay as they are."""
    if not is_pil(img) and get_dimensions(img)[0] == 1:
        return img
    return _adjust(img, saturation_factor, "Color", rgb_to_grayscale)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Colors turned along the circle of hues, by a share of it in [-0.5, 0.5]; gray images stay as they are."""
    check("adjust_hue", img)
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if isinstance(img, Tensor):
        return img if get_dimensions(img)[0] == 1 else _turn(img, hue_factor)
    if img.mode in ("L", "1", "I", "F"):
        return img
    from PIL import Image

    hue, saturation, value = img.convert("HSV").split()
    turned = np.asarray(hue) + np.int32(hue_factor * 255).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert(img.mode)


def _adjust(img: Any, factor: float, enhancement: str, neutral: Callable[[Tensor], Tensor]) -> Any:
    """`img` on the line through what is neutral to the enhancement (factor 0) and itself (factor 1)."""
    check(f"adjust_{enhancement.lower()}", img)
    if factor < 0:
        raise ValueError(f"the factor ({factor}) is negative")
    if not isinstance(img, Tensor):
        from PIL import ImageEnhance

        return getattr(ImageEnhance, enhancement)(img).enhance(factor)
    bound = 1.0 if img.is_floating_point() else float(np.iinfo(img.dtype.numpy).max)
    return (factor * img + (1.0 - factor) * neutral(img)).clamp(0, bound).to(img.dtype)


def _mean_brightness(image: Tensor) -> Tensor:
    dtype = image.dtype if image.is_floating_point() else dtypes.float32
    gray = rgb_to_grayscale(image) if get_dimensions(image)[0] == 3 else image
    return mean(gray.to(dtype), dim=(-3, -2, -1), keepdim=True)


def _turn(image: Tensor, share: float) -> Tensor:
    """Hue plus `share` of the circle. A channel falls and rises with hue between the pixel's least and its value.

    The way from RGB to hue and back is that of https://en.wikipedia.org/wiki/HSL_and_HSV.
    """
    unit = image if image.is_floating_point() else image.to(dtypes.float32) / 255.0
    red, green, blue = unit.unbind(-3)
    value, least = unit.amax(-3), unit.amin(-3)
    chroma = value - least
    scale = chroma + (chroma == 0)  # a gray pixel has no hue; any will do
    hue = ((green - blue) / scale).where(value == red, 2.0 + (blue - red) / scale)
    hue = hue.where((value == red) | (value == green), 4.0 + (red - green) / scale) + 6.0 * share
    turned = []
    for start in (5.0, 3.0, 1.0):
        place = (hue + start) % 6.0
        turned.append(value - chroma * place.minimum(4.0 - place).clamp(0.0, 1.0))
    out = stack(turned, -3)
    return out if image.is_floating_point() else (out * (255.0 + 1.0 - 1e-3)).to(image.dtype)
