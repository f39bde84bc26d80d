"""Images of both kinds: a PIL image, or a tensor (…, C, H, W)."""

from __future__ import annotations

import enum
from typing import Any

from ...core.tensor import Tensor


class InterpolationMode(enum.Enum):
    """How values between pixels are computed."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def is_pil(image: Any) -> bool:
    """True for a PIL image; Pillow is imported only by who makes one."""
    return hasattr(image, "getbands") and hasattr(image, "transpose")


def check(function: str, image: Any) -> None:
    """TypeError, which names `function`, unless `image` is one of the two kinds."""
    if not isinstance(image, Tensor) and not is_pil(image):
        raise TypeError(f"{function}: img should be PIL Image or Tensor (…, C, H, W). Got {type(image)}")
    if isinstance(image, Tensor) and image.ndim < 2:
        raise TypeError(f"{function}: Tensor is not a torch image: its shape is {tuple(image.shape)}")


def get_dimensions(img: Any) -> list[int]:
    """[channels, height, width]."""
    check("get_dimensions", img)
    if isinstance(img, Tensor):
        return [1 if img.ndim == 2 else img.shape[-3], *img.shape[-2:]]
    return [len(img.getbands()), img.height, img.width]
