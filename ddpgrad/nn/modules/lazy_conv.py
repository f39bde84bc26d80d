"""Lazy convolutions: the first input gives the number of input channels."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from . import conv
from .conv import Sizes
from .lazy import LazyLayer


class _LazyConvolution(LazyLayer, conv._ConvNd):
    """What the lazy convolutions share."""

    _counted = "in_channels"

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the number of channels from `input` (N, in_channels, *size) or (in_channels, *size)."""
        if self.has_uninitialized_params():
            dims = self._dims
            if input.ndim not in (dims + 1, dims + 2):
                raise RuntimeError(
                    f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {self._get_name()}, but got "
                    f"input of size: {list(input.shape)}"
                )
            self.in_channels = input.shape[-dims - 1]
            if self.in_channels % self.groups:
                raise ValueError("in_channels must be divisible by groups")
            self._take({"weight": self._weight_shape(), "bias": (self.out_channels,)})
        elif self.in_channels == 0:  # a state_dict has given the shapes
            shape = self.weight.shape
            self.in_channels = shape[0] if self.transposed else shape[1] * self.groups


class _LazyConv(_LazyConvolution, conv._Conv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = (kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        super().__init__(0, 0, *options)
        self.out_channels = out_channels
        self._forget(bias, device, dtype)


class _LazyConvTranspose(_LazyConvolution, conv._ConvTransposeNd):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = (stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype)
        super().__init__(0, 0, kernel_size, *options)
        self.out_channels = out_channels
        self._forget(bias, device, dtype)


class LazyConv1d(_LazyConv, conv.Conv1d):
    """A `Conv1d` with as many input channels as its first input has."""

    cls_to_become = conv.Conv1d


class LazyConv2d(_LazyConv, conv.Conv2d):
    """A `Conv2d` with as many input channels as its first input has."""

    cls_to_become = conv.Conv2d


class LazyConv3d(_LazyConv, conv.Conv3d):
    """A `Conv3d` with as many input channels as its first input has."""

    cls_to_become = conv.Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, conv.ConvTranspose1d):
    """A `ConvTranspose1d` with as many input channels as its first input has."""

    cls_to_become = conv.ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, conv.ConvTranspose2d):
    """A `ConvTranspose2d` with as many input channels as its first input has."""

    cls_to_become = conv.ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, conv.ConvTranspose3d):
    """A `ConvTranspose3d` with as many input channels as its first input has."""

    cls_to_become = conv.ConvTranspose3d
