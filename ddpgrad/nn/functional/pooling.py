"""Pooling over one to three dimensions, as functions.

`input` is (N, C, *size) or (C, *size), and *size has as many dimensions as the function's name says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import Tensor, abs, relu, reshape, scatter, sign
from ...backend.dtype import int64
from ...backend.windows import Ints, per_dimension
from ...ops.dispatch.node import guarded
from ...ops.dispatch.tensor_function import takes_out
from ...ops.elementwise.conversion import to, wide
from ...ops.layers import pool, resample
from .by_dims import named, with_indices


def _kernel_and_stride(dims: int, kernel_size: Any, stride: Any) -> tuple[Ints, Ints]:
    kernel = per_dimension(kernel_size, dims, "kernel_size")
    return kernel, kernel if stride is None or stride in ((), []) else per_dimension(stride, dims, "stride")


def _max_pool(dims: int, where: str = ""):
    @named(
        f"max_pool{dims}d",
        f"The largest element of each window; with `return_indices`, (values, their places{where}).",
    )
    def function(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if (
            dims == 1 and not return_indices and input.dtype.category == 1
        ):  # with indices, and over images, it is taken
            raise NotImplementedError(
                f"max_pool1d(): not implemented for '{input.dtype.scalar_type}' without return_indices"
            )
        kernel, stride = _kernel_and_stride(dims, kernel_size, stride)
        padding = per_dimension(padding, dims, "padding")
        out = pool.max_pool(
            input, kernel, stride, padding, per_dimension(dilation, dims, "dilation"), ceil_mode
        )
        guarded(out[0], input)
        return out if return_indices else out[0]

    return function


max_pool1d = _max_pool(1)
max_pool2d = _max_pool(2, " in the flattened image")
max_pool3d = _max_pool(3, " in the flattened volume")
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = map(
    with_indices, (max_pool1d, max_pool2d, max_pool3d)
)


def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window; padding counts as zeros if `count_include_pad`."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def _avg_pool_with_divisor(dims: int):
    @takes_out
    @named(
        f"avg_pool{dims}d",
        """The mean of each window; padding counts as zeros if `count_include_pad`.

    divisor_override: what sums are divided by, instead of the number of elements.
    """,
    )
    def function(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        options = (stride, padding, ceil_mode, count_include_pad, divisor_override)
        return _avg_pool(dims, input, kernel_size, *options)

    return function


avg_pool2d = _avg_pool_with_divisor(2)
avg_pool3d = _avg_pool_with_divisor(3)


def _avg_pool(
    dims: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    kernel, stride = _kernel_and_stride(dims, kernel_size, stride)
    padding = per_dimension(padding, dims, "padding")
    name = f"avg_pool{dims}d"
    pool.check_windows(name, input, kernel, stride, padding, (1,) * dims, ceil_mode)
    if divisor == 0:
        raise RuntimeError(f"{name}(): divisor must be not zero")
    options, out = (ceil_mode, count_include_pad), wide(input)
    for i in range(dims):
        dim = input.ndim - dims + i
        bands = pool.mean_bands(
            input.shape[dim], kernel[i], stride[i], padding[i], *options, 1 if divisor and i else divisor
        )
        out = resample.resample(out, dim, bands)
    return guarded(to(out, input.dtype), input)


def _lp_pool(dims: int):
    largest = (max_pool1d, max_pool2d, max_pool3d)[dims - 1]

    @named(f"lp_pool{dims}d", "The `norm_type`-norm of each window, where the sum of powers is positive.")
    def function(
        input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Tensor:
        kernel = per_dimension(kernel_size, dims, "kernel_size")
        if norm_type == math.inf:
            return largest(abs(input), kernel, stride, 0, 1, ceil_mode)
        if norm_type == -math.inf:
            return -largest(-abs(input), kernel, stride, 0, 1, ceil_mode)
        means = _avg_pool(dims, input**norm_type, kernel, stride, 0, ceil_mode, True, None)
        return (sign(means) * relu(abs(means)) * math.prod(kernel)) ** (1.0 / norm_type)

    return function


lp_pool1d = _lp_pool(1)
lp_pool2d = _lp_pool(2)
lp_pool3d = _lp_pool(3)


def _max_unpool(dims: int):
    name = f"max_unpool{dims}d"

    @named(
        name, f"The elements of `input` at the places that `max_pool{dims}d` took them from; zeros elsewhere."
    )
    def function(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        kernel, stride = _kernel_and_stride(dims, kernel_size, stride)
        padding = per_dimension(padding, dims, "padding")
        if input.ndim not in (dims + 1, dims + 2) or input.shape != indices.shape:
            raise RuntimeError(
                f"{name}(): Expected shape of indices to be that of a {dims + 1}D or {dims + 2}D input, "
                f"{list(input.shape)}, but got: {list(indices.shape)}"
            )
        if indices.dtype is not int64:
            raise RuntimeError(f"{name}(): elements in indices should be type int64 but got: {indices.dtype}")
        usual = [
            (n - 1) * s - 2 * p + k
            for n, s, p, k in zip(input.shape[-dims:], stride, padding, kernel, strict=True)
        ]
        image = list(usual if output_size is None else output_size)
        image = image[-dims:] if len(image) == dims + 2 else image
        if len(image) != dims:
            raise ValueError(
                f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a length of "
                f"'{len(image)}'"
            )
        for dim, (n, least, s) in enumerate(zip(image, usual, stride, strict=True)):
            if not least - s < n < least + s:
                raise ValueError(
                    f'invalid output_size "{tuple(image)}" (dim {dim} must be between {least - s} and {least + s})'
                )
        lead, places = tuple(input.shape[:-dims]), math.prod(image)
        if input.is_cpu and indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < places:
            wrong = indices.max() if int(indices.max()) >= places else indices.min()
            raise RuntimeError(
                f"Found an invalid max index: {int(wrong)} (output volumes are of size {'x'.join(map(str, image))})"
            )
        windows = math.prod(input.shape[-dims:])
        zeros = input.new_zeros((math.prod(lead), places))
        index = reshape(indices, (math.prod(lead), windows))
        return reshape(scatter(zeros, 1, index, reshape(input, tuple(index.shape))), (*lead, *image))

    return function


max_unpool1d = _max_unpool(1)
max_unpool2d = _max_unpool(2)
max_unpool3d = _max_unpool(3)
