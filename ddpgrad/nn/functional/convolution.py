"""Convolutions and transposed convolutions over one to three dimensions, as functions."""

from __future__ import annotations

from typing import Any

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ...ops.layers import conv
from ...ops.layers.windows import Ints, per_dimension
from ...ops.shape.shape import constant_pad, reshape, squeeze, unsqueeze


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`input` (N, C, L) or (C, L) cross-correlated with `weight` (O, C/groups, k), plus `bias` (O,).

    padding: numbers, "same" or "valid".
    """
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`input` (N, C, H, W) or (C, H, W) cross-correlated with `weight` (O, C/groups, kh, kw), plus `bias` (O,).

    padding: numbers, "same" or "valid".
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`input` (N, C, D, H, W) or (C, D, H, W) cross-correlated with `weight` (O, C/groups, kd, kh, kw).

    Plus `bias` (O,). padding: numbers, "same" or "valid".
    """
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _convolve(
    name: str,
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    ndim = input.ndim
    _check_dims(name, dims, input, weight)
    if ndim == dims + 1:
        input = unsqueeze(input, 0)
    if padding.__class__ is str:
        input, padding = _named_padding(name, input, weight, stride, padding, per_dimension(dilation, dims))
    out = conv.convolution(input, weight, bias, stride, padding, dilation, groups)
    return squeeze(out, 0) if ndim == dims + 1 else out


def _check_dims(name: str, dims: int, input: Tensor, weight: Tensor) -> None:
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    if weight.ndim != dims + 2:
        raise RuntimeError(
            f"{name}(): expected a {dims + 2}D weight (out_channels, in_channels/groups, *kernel), got weight of "
            f"size {list(weight.shape)}"
        )


def _named_padding(
    name: str, input: Tensor, weight: Tensor, stride: Any, padding: str, dilation: Ints
) -> tuple[Tensor, Ints]:
    """`padding` in numbers; an odd amount goes to the end, where the input that is returned has it already."""
    kernel = weight.shape[2:]
    if padding == "valid":
        return input, (0,) * len(kernel)
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: {padding!r}; {name}() takes 'valid', 'same' or numbers")
    if any(s != 1 for s in per_dimension(stride, len(kernel))):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if any(r % 2 for r in reach):
        input = constant_pad(input, ((0, 0), (0, 0), *((0, r % 2) for r in reach)), 0.0)
    return input, tuple(r // 2 for r in reach)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The gradient of `conv1d` for its input, applied to `input` (N, C, L) or (C, L): (N, O, L').

    weight: (C, O/groups, k). output_padding: how much longer the result is, of the lengths that
    the convolution brings to L.
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _convolve_transposed("conv_transpose1d", 1, input, weight, bias, *options)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The gradient of `conv2d` for its input, applied to `input` (N, C, H, W) or (C, H, W): (N, O, H', W').

    weight: (C, O/groups, kh, kw). output_padding: how much larger the result is, of the sizes
    that the convolution brings to (H, W).
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _convolve_transposed("conv_transpose2d", 2, input, weight, bias, *options)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The gradient of `conv3d` for its input, applied to `input` (N, C, D, H, W) or (C, D, H, W).

    weight: (C, O/groups, kd, kh, kw). output_padding: how much larger the result is, of the sizes
    that the convolution brings to (D, H, W).
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _convolve_transposed("conv_transpose3d", 3, input, weight, bias, *options)


def _convolve_transposed(
    name: str,
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    ndim = input.ndim
    _check_dims(name, dims, input, weight)
    if input.dtype.category == 1 and input.dtype is not dtypes.int64:
        raise NotImplementedError(f"{name}(): not implemented for {input.dtype.name}")
    if ndim == dims + 1:
        input = unsqueeze(input, 0)
    stride, padding = per_dimension(stride, dims, "stride"), per_dimension(padding, dims, "padding")
    dilation = per_dimension(dilation, dims, "dilation")
    output_padding = per_dimension(output_padding, dims, "output_padding")
    conv.check_options(stride, padding, dilation, groups)
    if input.shape[1] != weight.shape[0] or input.shape[1] % groups:
        raise RuntimeError(
            f"Given transposed=1, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have "
            f"{weight.shape[0]} channels in {groups} groups, but got {input.shape[1]} channels instead"
        )
    outputs = weight.shape[1] * groups
    conv.check_parameters(input, weight, bias, outputs)
    for more, s, d in zip(output_padding, stride, dilation, strict=True):
        if more >= max(s, d):
            raise RuntimeError(
                f"output padding must be smaller than either stride or dilation, but got output_padding: "
                f"{output_padding}, stride: {stride}, dilation: {dilation}"
            )
    size = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + more
        for n, s, p, d, k, more in zip(
            input.shape[2:], stride, padding, dilation, weight.shape[2:], output_padding, strict=True
        )
    ]
    if min(size) <= 0:
        raise RuntimeError(
            f"Given input size per channel: {list(input.shape[2:])}. Calculated output size per channel: {size}. "
            "Output size is too small"
        )
    shape = (input.shape[0], outputs, *size)
    out = conv.convolution_input(input, weight, shape, stride, padding, dilation, groups)
    if bias is not None:
        out = out + reshape(bias, (outputs, *[1] * dims))
    return squeeze(out, 0) if ndim == dims + 1 else out
