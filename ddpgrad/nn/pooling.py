"""Pooling layers."""

from __future__ import annotations

from typing import Any

from .._tensor import Tensor
from . import functional as F
from .convolution import Pair
from .module import Module


class MaxPool2d(Module):
    """The largest element of each window; with `return_indices`, its place in the flattened image too."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        options = (
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )
        return F.max_pool2d(input, *options)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        options = (self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return F.avg_pool2d(input, *options, self.divisor_override)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means of windows chosen so that the result is (H, W) = `output_size`; None keeps a length."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
