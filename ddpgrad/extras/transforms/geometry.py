"""Transforms that crop, flip or resize an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import draws
from . import functional as F
from .functional import InterpolationMode
from .pixels import Transform

Size = int | Sequence[int]


def _height_and_width(size: Size) -> tuple[int, int]:
    sides = [size] if isinstance(size, int) else list(size)
    if len(sides) not in (1, 2):
        raise ValueError(f"size is one number or (height, width), got {size}")
    return sides[0], sides[-1]


class CenterCrop(Transform):
    """The middle part."""

    def __init__(self, size: Size) -> None:
        self.size = _height_and_width(size)

    def __call__(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(Transform):
    """Margins around the image; see `functional.pad`."""

    def __init__(self, padding: Size, fill: Any = 0, padding_mode: str = "constant") -> None:
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def __call__(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(Transform):
    """A part of `size` at a random place, of the image with `padding` around it."""

    def __init__(
        self,
        size: Size,
        padding: Size | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = _height_and_width(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """(top, left, height, width) of a part; ValueError if the image is smaller."""
        _, h, w = F.get_dimensions(img)
        height, width = output_size
        if h < height or w < width:
            raise ValueError(
                f"Required crop size {(height, width)} is larger than input image size {(h, w)}; "
                "pad_if_needed=True pads it"
            )
        if (h, w) == (height, width):
            return 0, 0, h, w
        return draws.integer(h - height + 1), draws.integer(w - width + 1), height, width

    def __call__(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, h, w = F.get_dimensions(img)
        if self.pad_if_needed and w < self.size[1]:
            img = F.pad(img, [self.size[1] - w, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and h < self.size[0]:
            img = F.pad(img, [0, self.size[0] - h], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomHorizontalFlip(Transform):
    """Left and right exchanged, with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        return F.hflip(img) if draws.number() < self.p else img


class RandomVerticalFlip(Transform):
    """Top and bottom exchanged, with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        return F.vflip(img) if draws.number() < self.p else img


class Resize(Transform):
    """Another size; see `functional.resize`."""

    def __init__(
        self,
        size: Size,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        self.size = size
        self.interpolation = interpolation
        self.max_size = max_size
        self.antialias = antialias

    def __call__(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class RandomResizedCrop(Transform):
    """A part of random area and aspect ratio, in `size` (https://arxiv.org/abs/1409.4842, section 6).

    scale: share of the area. ratio: width to height. After ten parts that do not fit, the middle is taken.
    """

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        self.size = _height_and_width(size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation
        self.antialias = antialias

    @staticmethod
    def get_params(
        img: Any, scale: tuple[float, float], ratio: tuple[float, float]
    ) -> tuple[int, int, int, int]:
        """(top, left, height, width) of a part."""
        _, h, w = F.get_dimensions(img)
        for _ in range(10):
            width, height = draws.sides(h * w, scale, ratio)
            if 0 < width <= w and 0 < height <= h:
                return draws.integer(h - height + 1), draws.integer(w - width + 1), height, width
        width, height = w, h
        if w / h < min(ratio):
            height = round(w / min(ratio))
        elif w / h > max(ratio):
            width = round(h * max(ratio))
        return (h - height) // 2, (w - width) // 2, height, width

    def __call__(self, img: Any) -> Any:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, self.antialias)


class RandomRotation(Transform):
    """The image turned by an angle from [-degrees, degrees], or from the pair that is given; see `functional.rotate`."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:
        if isinstance(degrees, (int, float)):
            if degrees < 0:
                raise ValueError("If degrees is a single number, it must be positive.")
            degrees = (-degrees, degrees)
        if len(degrees) != 2:
            raise ValueError("degrees should be a sequence of length 2.")
        self.degrees = [float(d) for d in degrees]
        self.interpolation = interpolation
        self.expand = expand
        self.center = center
        self.fill = fill

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        """An angle."""
        return draws.number(degrees[0], degrees[1])

    def __call__(self, img: Any) -> Any:
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)
