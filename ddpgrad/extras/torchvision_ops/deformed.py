"""Deformable convolution: each tap of the kernel reads the image where an offset says, bilinearly.

https://arxiv.org/abs/1703.06211, and with a factor for each tap https://arxiv.org/abs/1811.11168.
"""

from __future__ import annotations

from ... import Tensor, arange, einsum, enable_grad
from ...autograd import grad as grad_of


def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int, pad_h: int,
    pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    """(N, O, H', W') of an image (N, C, H, W) and kernels (O, C / groups, kh, kw).

    offset: (N, offset_groups * kh * kw * 2, H', W'), how far each tap reads below and right of its place, in pixels.
    mask: (N, offset_groups * kh * kw, H', W'), what each tap is multiplied by, if `use_mask`.
    """
    count, channels, height, width = input.shape
    out_channels, _, kernel_h, kernel_w = weight.shape
    out_h, out_w = offset.shape[-2:]
    taps = (kernel_h, kernel_w, out_h, out_w)
    expected = [
        (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
        for size, pad, dilation, kernel, stride in (
            (height, pad_h, dilation_h, kernel_h, stride_h),
            (width, pad_w, dilation_w, kernel_w, stride_w),
        )
    ]
    if [out_h, out_w] != expected:
        raise RuntimeError(f"offset output dims: {(out_h, out_w)} - computed output dims: {tuple(expected)}")
    shifts = offset.reshape(count, offset_groups, kernel_h, kernel_w, 2, out_h, out_w)

    def places(size: int, stride: int, pad: int, dilation: int, taps: int) -> Tensor:
        """Where the taps of the kernel lie without an offset: (taps, size)."""
        starts = arange(size, dtype=input.dtype, device=input.device) * stride - pad
        return starts + (arange(taps, dtype=input.dtype, device=input.device) * dilation).unsqueeze(-1)

    y = shifts[..., 0, :, :] + places(out_h, stride_h, pad_h, dilation_h, kernel_h).reshape(
        kernel_h, 1, out_h, 1
    )
    x = shifts[..., 1, :, :] + places(out_w, stride_w, pad_w, dilation_w, kernel_w).reshape(
        kernel_w, 1, out_w
    )
    flat = input.reshape(count, offset_groups, channels // offset_groups, height * width)
    read = _bilinear(flat, y.flatten(2), x.flatten(2), height, width)
    if use_mask:
        read = read * mask.reshape(count, offset_groups, 1, -1)
    columns = read.reshape(count, groups, channels // groups, *taps)
    kernels = weight.reshape(groups, out_channels // groups, channels // groups, kernel_h, kernel_w)
    out = einsum("ngcabhw,gocab->ngohw", columns, kernels).reshape(count, out_channels, out_h, out_w)
    return out + bias.reshape(1, -1, 1, 1)


def _bilinear(flat: Tensor, y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """Samples (N, G, C, S) of images (N, G, C, height * width) at places (N, G, S); zeros lie around an image."""
    top, left = y.detach().floor(), x.detach().floor()
    out = None
    for down in (0, 1):
        for right in (0, 1):
            row, column = top + down, left + right
            share = (1 - (y - row).abs()) * (1 - (x - column).abs())
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            index = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long().unsqueeze(2)
            part = flat.gather(3, index.expand(-1, -1, flat.shape[2], -1)) * (share * inside).unsqueeze(2)
            out = part if out is None else out + part
    assert out is not None
    return out


def deform_conv2d_backward(
    grad: Tensor, input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *rest: int
) -> tuple[Tensor, ...]:
    """The gradients of `deform_conv2d`'s input, weight, offset, mask and bias; rest: its other arguments."""
    leaves = [tensor.detach().requires_grad_() for tensor in (input, weight, offset, mask, bias)]
    with enable_grad():
        out = deform_conv2d(*leaves, *rest)  # pyright: ignore[reportArgumentType]
    found = grad_of(out, leaves, grad, allow_unused=True)
    return tuple(
        leaf.new_zeros(leaf.shape) if g is None else g for leaf, g in zip(leaves, found, strict=True)
    )
