"""Transforms that compose others, convert types, or change pixels where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._tensor import Tensor
from ..backend import dtype as dtypes
from ..random import default_generator
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
        if self.p < default_generator().uniform(1).item():
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
