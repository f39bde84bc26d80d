"""Transforms that compose others, convert types, or change pixel values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import Tensor, randn, tensor
from ...backend import dtype as dtypes
from . import draws
from . import functional as F


class Transform:
    """A function of an image, that can be sent to workers and prints its settings."""

    def __call__(self, img: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return "\n".join(["Compose(", *(f"    {transform}" for transform in self.transforms), ")"])


class RandomApply(Transform):
    """All of `transforms`, with probability `p`."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5) -> None:
        self.transforms = transforms
        self.p = p

    def __call__(self, img: Any) -> Any:
        if self.p < draws.number():
            return img
        for transform in self.transforms:
            img = transform(img)
        return img


class Lambda(Transform):
    """Any function of the image; workers need one that is defined at the top of a module."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"


class ToTensor(Transform):
    """A PIL image, or an array (H, W[, C]), as a tensor (C, H, W); bytes become floats in [0, 1]."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)


class PILToTensor(Transform):
    """A PIL image as a tensor (C, H, W) of its own type."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)


class ToPILImage(Transform):
    """A tensor (C, H, W) or an array (H, W, C) as a PIL image."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)


class ConvertImageDtype(Transform):
    """Another dtype, scaled to its range."""

    def __init__(self, dtype: dtypes.DType) -> None:
        self.dtype = dtype

    def __call__(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(Transform):
    """(x - mean) / std for each channel of a float tensor (…, C, H, W)."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def __call__(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


class Grayscale(Transform):
    """Brightness, in one channel or the same in three."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    def __call__(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(Transform):
    """Brightness in all channels, with probability `p`."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        if draws.number() >= self.p:
            return img
        return F.rgb_to_grayscale(img, F.get_dimensions(img)[0])


Range = float | Sequence[float]


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed by random factors, in random order.

    A number x means factors in [max(0, 1 - x), 1 + x], and for hue a turn in [-x, x]; a pair means itself.
    """

    def __init__(
        self, brightness: Range = 0, contrast: Range = 0, saturation: Range = 0, hue: Range = 0
    ) -> None:
        self.brightness = _limits("brightness", brightness)
        self.contrast = _limits("contrast", contrast)
        self.saturation = _limits("saturation", saturation)
        self.hue = _limits("hue", hue, centre=0.0, bounds=(-0.5, 0.5))

    @staticmethod
    def get_params(*ranges: Sequence[float] | None) -> tuple[Any, ...]:
        """(order, brightness, contrast, saturation, hue); None for what stays as it is."""
        order = draws.order(len(ranges))
        return (order, *(limits and draws.number(*limits) for limits in ranges))

    def __call__(self, img: Any) -> Any:
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        changes = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for i in order:
            if factors[i] is not None:
                img = changes[i](img, factors[i])
        return img


def _limits(
    name: str, value: Range, centre: float = 1.0, bounds: tuple[float, float] = (0.0, float("inf"))
) -> tuple[float, float] | None:
    """The range of factors that an option of ColorJitter means; None if it changes nothing."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        low, high = centre - value, centre + value
        if centre:
            low = max(low, 0.0)
    elif len(value) == 2:
        low, high = float(value[0]), float(value[1])
    else:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not bounds[0] <= low <= high <= bounds[1]:
        raise ValueError(f"{name} values should be between {bounds}, but got {[low, high]}.")
    return None if low == high == centre else (low, high)


class GaussianBlur(Transform):
    """The image blurred by a bell curve of `kernel_size` pixels, whose width is a `sigma` from a range."""

    def __init__(self, kernel_size: int | Sequence[int], sigma: Range = (0.1, 2.0)) -> None:
        self.kernel_size = F.pair(kernel_size)  # (width, height), unlike other sizes
        if any(side <= 0 or side % 2 == 0 for side in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        self.sigma = (sigma, sigma) if isinstance(sigma, (int, float)) else tuple(sigma)
        if not 0.0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError("sigma values should be positive and of the form (min, max).")

    def __call__(self, img: Any) -> Any:
        sigma = draws.number(*self.sigma)
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])


class RandomErasing(Transform):
    """A rectangle of a tensor filled with `value`, with probability `p` (https://arxiv.org/abs/1708.04896).

    value: one number, one for each channel, or "random" for normal noise. scale: share of the area. ratio:
    of the sides.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
    ) -> None:
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        self.p = p
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace

    def __call__(self, img: Tensor) -> Tensor:
        if draws.number() >= self.p:
            return img
        channels, h, w = F.get_dimensions(img)
        for _ in range(10):
            height, width = draws.sides(h * w, self.scale, self.ratio)
            if height >= h or width >= w:
                continue
            value = self._value(channels, height, width)
            top = draws.integer(h - height + 1)
            left = draws.integer(w - width + 1)
            return F.erase(img, top, left, height, width, value.to(img.device), self.inplace)
        return img

    def _value(self, channels: int, height: int, width: int) -> Tensor:
        if self.value == "random":
            return randn(channels, height, width, dtype=dtypes.float32)
        values = [self.value] if isinstance(self.value, (int, float)) else list(self.value)
        if len(values) not in (1, channels):
            raise ValueError(
                "If value is a sequence, it should have either a single value or one for each of the image's "
                f"{channels} channels"
            )
        return tensor(values).reshape(-1, 1, 1)
