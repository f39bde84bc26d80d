"""Convolutions and transposed convolutions over one to three dimensions, as functions."""

from __future__ import annotations

from typing import Any

from ...backend import dtype as dtypes
from ...backend.windows import Ints, per_dimension
from ...core.tensor import Tensor
from ...ops.dispatch.node import guarded
from ...ops.elementwise.conversion import to, wide
from ...ops.layers import conv
from ...ops.shape.shape import constant_pad, reshape, squeeze, unsqueeze
from .by_dims import SIZES, named


def _check_dims(name: str, dims: int, input: Tensor, weight: Tensor) -> None:
    if weight.ndim != dims + 2:
        raise RuntimeError(
            f"{name}(): weight should have at least three dimensions, {dims + 2} of them (out_channels, "
            f"in_channels/groups, *kernel), got weight of size {list(weight.shape)}"
            if weight.ndim < 3
            else f"{name}(): Expected {weight.ndim}-dimensional input for {weight.ndim}-dimensional weight "
            f"{list(weight.shape)}, and a weight of {dims + 2} dimensions (out_channels, in_channels/groups, *kernel)"
        )
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
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


def _convolution(dims: int):
    name, sizes = f"conv{dims}d", SIZES[dims]

    @named(
        name,
        f"""`input` (N, C, {sizes}) or (C, {sizes}) cross-correlated with `weight` (O, C/groups, *kernel), plus `bias` (O,).

    padding: numbers, "same" or "valid".
    """,
    )
    def function(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        ndim = input.ndim
        _check_dims(name, dims, input, weight)
        if ndim == dims + 1:
            input = unsqueeze(input, 0)
        if padding.__class__ is str:
            input, padding = _named_padding(
                name, input, weight, stride, padding, per_dimension(dilation, dims)
            )
        out = conv.convolution(input, weight, bias, stride, padding, dilation, groups)
        return squeeze(out, 0) if ndim == dims + 1 else out

    return function


conv1d = _convolution(1)
conv2d = _convolution(2)
conv3d = _convolution(3)


def _transposed(dims: int):
    name, sizes = f"conv_transpose{dims}d", SIZES[dims]

    @named(
        name,
        f"""The gradient of `conv{dims}d` for its input, applied to `input` (N, C, {sizes}) or (C, {sizes}).

    weight: (C, O/groups, *kernel). output_padding: how much larger the result is, of the sizes
    that the convolution brings to ({sizes}).
    """,
    )
    def function(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        ndim = input.ndim
        _check_dims(name, dims, input, weight)
        if input.dtype.category == 1 and input.dtype is not dtypes.int64:
            raise NotImplementedError(f"{name}(): not implemented for '{input.dtype.scalar_type}'")
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
        if min(output_padding) < 0:
            raise RuntimeError(f"negative output_padding is not supported, got {output_padding}")
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
        if bias is None:
            out = conv.convolution_input(input, weight, shape, stride, padding, dilation, groups)
        else:
            out = conv.convolution_input(wide(input), wide(weight), shape, stride, padding, dilation, groups)
            out = to(out + reshape(wide(bias), (outputs, *[1] * dims)), input.dtype)
            guarded(out, input, weight)
        return squeeze(out, 0) if ndim == dims + 1 else out

    return function


conv_transpose1d = _transposed(1)
conv_transpose2d = _transposed(2)
conv_transpose3d = _transposed(3)
