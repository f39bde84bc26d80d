"""Layers for patches of images as columns, and for pixel and channel shuffles."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .. import functional as F
from .module import Module


class Unfold(Module):
    """The patches of images (N, C, H, W), or of one (C, H, W), as columns: (N, C * kh * kw, patches)."""

    _repr_attributes = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """Columns (N, C * kh * kw, patches), or without N, added up to images (N, C, *output_size) where they overlap."""

    _repr_attributes = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        options = (self.kernel_size, self.dilation, self.padding, self.stride)
        return F.fold(input, self.output_size, *options)


class PixelShuffle(Module):
    """(*, C * r^2, H, W) as (*, C, H * r, W * r): groups of r^2 channels become r x r pixels.

    Source: https://arxiv.org/abs/1609.05158
    """

    _repr_attributes = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(Module):
    """(*, C, H * r, W * r) as (*, C * r^2, H, W): the inverse of `PixelShuffle`."""

    _repr_attributes = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)


class ChannelShuffle(Module):
    """Channels (N, C, *) in an order that takes one of each of the `groups` in turn.

    Source: https://arxiv.org/abs/1707.01083
    """

    _repr_attributes = ("groups",)

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)
