"""Convolution layers over one to three dimensions, and their transposes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...backend.windows import per_dimension
from ...core.face import also_in
from ...core.tensor import Tensor
from ...ops.creation.factories import empty
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .dims import OverDims

Sizes = int | tuple[int, ...]
_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(OverDims):
    """What all convolutions share: options as tuples, parameters and their initial values."""

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: str | Sizes,
        dilation: Sizes,
        transposed: bool,
        output_padding: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        dims = self._dims
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(
                    f"{name} must be divisible by groups, got {name}={channels}, groups={groups}"
                )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = per_dimension(kernel_size, dims), per_dimension(stride, dims)
        self.padding = padding if isinstance(padding, str) else per_dimension(padding, dims)
        self.dilation, self.transposed = per_dimension(dilation, dims), transposed
        self.output_padding, self.padding_mode = per_dimension(output_padding, dims), padding_mode
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of {{'valid', 'same'}} or numbers"
                )
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(
                f"padding_mode must be one of {set(_MODES)}, but got padding_mode={padding_mode!r}"
            )
        self._reversed_padding_repeated_twice = self._widths()
        self.weight = Parameter(empty(self._weight_shape(), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        channels = (self.out_channels, self.in_channels)
        if self.transposed:
            channels = (self.in_channels, self.out_channels)
        return (channels[0], channels[1] // self.groups, *self.kernel_size)

    def _widths(self) -> Sequence[int]:
        """`padding` as `F.pad` takes it: (before, after), the last dimension first."""
        widths: list[int] = []
        for i in reversed(range(self._dims)):
            if isinstance(self.padding, str):
                total = self.dilation[i] * (self.kernel_size[i] - 1) if self.padding == "same" else 0
                widths += [total // 2, total - total // 2]
            else:
                widths += [self.padding[i]] * 2
        return widths if isinstance(self.padding, str) else tuple(widths)

    def reset_parameters(self) -> None:
        """Draw the parameters anew: uniform within 1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        nothing, ones = (0,) * self._dims, (1,) * self._dims
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        )
        for name, usual in (
            ("padding", nothing),
            ("dilation", ones),
            ("output_padding", nothing),
            ("groups", 1),
        ):
            value = getattr(self, name)
            if value != usual:
                text += f", {name}={value}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _Conv(_ConvNd):
    """The convolutions; they differ in the number of dimensions."""

    def __init__(
        self,
        in_channels: int,
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
        options = (stride, padding, dilation, False, 0, groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *options)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution by other parameters than the layer's own."""
        convolve = _CONVOLUTIONS[self._dims]
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, self.padding_mode), 0
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv, dims=1):
    """Signals (N, in_channels, L), or one (in_channels, L), cross-correlated with learned kernels.

    padding: numbers, "same" or "valid"; padding_mode: "zeros", "reflect", "replicate" or "circular".
    """


class Conv2d(_Conv, dims=2):
    """Images (N, in_channels, H, W), or one (in_channels, H, W), cross-correlated with learned kernels.

    padding: numbers, "same" or "valid"; padding_mode: "zeros", "reflect", "replicate" or "circular".
    """


class Conv3d(_Conv, dims=3):
    """Volumes (N, in_channels, D, H, W), or one without N, cross-correlated with learned kernels.

    padding: numbers, "same" or "valid"; padding_mode: "zeros", "reflect", "replicate" or "circular".
    """


class _ConvTransposeNd(_ConvNd):
    """The transposed convolutions; they differ in the number of dimensions."""

    def __init__(
        self,
        in_channels: int,
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
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        options = (stride, padding, dilation, True, output_padding, groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *options)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """output_size: the spatial size wanted, of those that `output_padding` could give."""
        more = self.output_padding if output_size is None else self._output_padding(input, output_size)
        convolve = _TRANSPOSED[self._dims]
        options = (self.stride, self.padding, more, self.groups, self.dilation)
        return convolve(input, self.weight, self.bias, *options)

    def _output_padding(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """By how much `output_size` is larger than the least size; `ValueError` if there is no such padding."""
        dims = self._dims
        lead = input.ndim - dims
        wanted = list(output_size)[lead:] if len(output_size) == input.ndim else list(output_size)
        if len(wanted) != dims:
            raise ValueError(
                f"{type(self).__name__}: for {input.ndim}D input, output_size must have {dims} or {input.ndim} "
                f"elements (got {len(output_size)})"
            )
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[lead:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        most = [low + s - 1 for low, s in zip(least, self.stride, strict=True)]
        for size, low, high in zip(wanted, least, most, strict=True):
            if not low <= size <= high:
                raise ValueError(
                    f"requested an output size of {wanted}, but valid sizes range from {least} to {most} (for an "
                    f"input of {list(input.shape[lead:])})"
                )
        return tuple(size - low for size, low in zip(wanted, least, strict=True))


class ConvTranspose1d(_ConvTransposeNd, dims=1):
    """The transpose of `Conv1d`: signals (N, in_channels, L), or one (in_channels, L), made longer."""


class ConvTranspose2d(_ConvTransposeNd, dims=2):
    """The transpose of `Conv2d`: images (N, in_channels, H, W), or one (in_channels, H, W), made larger."""


class ConvTranspose3d(_ConvTransposeNd, dims=3):
    """The transpose of `Conv3d`: volumes (N, in_channels, D, H, W), or one without N, made larger."""


_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

__getattr__ = also_in(__package__ or "", "lazy_conv")


_ConvTransposeMixin = _ConvTransposeNd
"""The former name, which mmengine asks for."""
