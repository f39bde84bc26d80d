"""Pooling layers over one to three dimensions: inputs are (N, C, *size) or (C, *size)."""

from __future__ import annotations

from typing import Any

from ...backend.windows import per_dimension
from ...core.tensor import Tensor
from .. import functional as F
from .dims import OverDims
from .module import Module

Sizes = int | tuple[int, ...]
_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_UNPOOL = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}
_LP = {1: F.lp_pool1d, 2: F.lp_pool2d, 3: F.lp_pool3d}
_ADAPTIVE_MEAN = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
_ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
_FRACTIONAL = {2: F.fractional_max_pool2d, 3: F.fractional_max_pool3d}


class _MaxPoolNd(OverDims):
    _repr_attributes = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        options = (self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)
        return _MAX[self._dims](input, self.kernel_size, *options)


class MaxPool1d(_MaxPoolNd, dims=1):
    """The largest element of each window; with `return_indices`, its place too."""


class MaxPool2d(_MaxPoolNd, dims=2):
    """The largest element of each window; with `return_indices`, its place in the flattened image too."""


class MaxPool3d(_MaxPoolNd, dims=3):
    """The largest element of each window; with `return_indices`, its place in the flattened volume too."""


class _MaxUnpoolNd(OverDims):
    _repr_attributes = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size = per_dimension(kernel_size, self._dims)
        self.stride = per_dimension(kernel_size if stride is None else stride, self._dims)
        self.padding = per_dimension(padding, self._dims)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        options = (self.kernel_size, self.stride, self.padding, output_size)
        return _UNPOOL[self._dims](input, indices, *options)


class MaxUnpool1d(_MaxUnpoolNd, dims=1):
    """Elements at the places that `MaxPool1d` took them from; zeros elsewhere."""


class MaxUnpool2d(_MaxUnpoolNd, dims=2):
    """Elements at the places that `MaxPool2d` took them from; zeros elsewhere."""


class MaxUnpool3d(_MaxUnpoolNd, dims=3):
    """Elements at the places that `MaxPool3d` took them from; zeros elsewhere."""


class _AvgPoolNd(Module):
    _repr_attributes = ("kernel_size", "stride", "padding")


class AvgPool1d(_AvgPoolNd):
    """The mean of each window; padding counts as zeros if `count_include_pad`."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = per_dimension(kernel_size, 1)
        self.stride = per_dimension(kernel_size if stride is None else stride, 1)
        self.padding, self.ceil_mode = per_dimension(padding, 1), ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        options = (self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return F.avg_pool1d(input, *options)


class _AvgPool(_AvgPoolNd):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def _options(self) -> tuple[Any, ...]:
        windows = (self.kernel_size, self.stride, self.padding, self.ceil_mode)
        return (*windows, self.count_include_pad, self.divisor_override)


class AvgPool2d(_AvgPool):
    """The mean of each window; padding counts as zeros if `count_include_pad`.

    divisor_override: what sums are divided by, instead of the number of elements.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(input, *self._options())


class AvgPool3d(_AvgPool):
    """The mean of each window; padding counts as zeros if `count_include_pad`.

    divisor_override: what sums are divided by, instead of the number of elements.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(input, *self._options())


class _LPPoolNd(OverDims):
    _repr_attributes = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        options = (float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)
        return _LP[self._dims](input, *options)


class LPPool1d(_LPPoolNd, dims=1):
    """The `norm_type`-norm of each window."""


class LPPool2d(_LPPoolNd, dims=2):
    """The `norm_type`-norm of each window."""


class LPPool3d(_LPPoolNd, dims=3):
    """The `norm_type`-norm of each window."""


class _AdaptiveAvgPoolNd(OverDims):
    _repr_attributes = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return _ADAPTIVE_MEAN[self._dims](input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd, dims=1):
    """Means of windows chosen so that the result is `output_size` long."""


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd, dims=2):
    """Means of windows chosen so that the result is (H, W) = `output_size`; None keeps a length."""


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd, dims=3):
    """Means of windows chosen so that the result is (D, H, W) = `output_size`; None keeps a length."""


class _AdaptiveMaxPoolNd(OverDims):
    _repr_attributes = ("output_size",)

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        return _ADAPTIVE_MAX[self._dims](input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd, dims=1):
    """The largest elements of windows chosen so that the result is `output_size` long."""


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd, dims=2):
    """The largest elements of windows chosen so that the result is (H, W) = `output_size`; None keeps a length."""


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd, dims=3):
    """The largest elements of windows chosen so that the result is (D, H, W) = `output_size`; None keeps a length."""


class _FractionalMaxPool(OverDims):
    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        dims, name = self._dims, type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError(f"only one of output_size and output_ratio may be specified in {name}")
        self.kernel_size, self.return_indices = per_dimension(kernel_size, dims), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else per_dimension(output_size, dims)
        self.output_ratio = None
        if output_ratio is not None:
            ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * dims
            self.output_ratio = tuple(ratios)
            if not all(0 < ratio < 1 for ratio in ratios):
                raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        options = (self.output_size, self.output_ratio, self.return_indices, self._random_samples)
        return _FRACTIONAL[self._dims](input, self.kernel_size, *options)


class FractionalMaxPool2d(_FractionalMaxPool, dims=2):
    """The largest elements of windows at pseudo-random places.

    output_size: how many windows; or output_ratio, their number relative to the size of the image.
    Source: https://arxiv.org/abs/1412.6071
    """


class FractionalMaxPool3d(_FractionalMaxPool, dims=3):
    """The largest elements of windows at pseudo-random places.

    output_size: how many windows; or output_ratio, their number relative to the size of the volume.
    Source: https://arxiv.org/abs/1412.6071
    """
