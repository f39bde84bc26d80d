"""Convolution of images in which every channel is a group of its own, compiled for the CPU.

The products of `conv2d.py` would have one row here; instead, rows of the image are multiplied by
one number and added up. No array may be empty.
"""

from __future__ import annotations

import numpy as np

from .vectormath import kernel

Array = np.ndarray
Pair = tuple[int, int]

# With unsigned indices LLVM sees that a run is contiguous.
u = np.uint64


def pays(weight_shape: tuple[int, ...], groups: int) -> bool:
    """True for a weight (O, 1, kh, kw) of as many groups as the input has channels."""
    return groups > 1 and weight_shape[1] == 1


def convolve(
    input: Array, weight: Array, bias: Array | None, stride: Pair, padding: Pair, dilation: Pair, size: Pair
) -> Array:
    """Cross-correlation of input (N, C, H, W) with weight (O, 1, kh, kw) plus bias (O,): (N, O, *size)."""
    outputs = len(weight)
    out = np.empty((len(input), outputs, *size), input.dtype)
    offset = np.zeros(outputs, input.dtype) if bias is None else np.ascontiguousarray(bias)
    options = list(zip(stride, padding, dilation, strict=True))
    runs = _runs(weight.shape[3], (input.shape[3], size[1]), *options[1])
    _convolve(_phases(input, stride[1]), _weights(weight), offset, runs, *options[0], out)
    return out


def convolve_input(
    g: Array, weight: Array, input_shape: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The gradient of `convolve` for its input, from g (N, O, OH, OW)."""
    *lead, width = input_shape
    phases = stride[1]
    out = np.zeros((*lead, phases, -(-width // phases)), g.dtype)
    options = list(zip(stride, padding, dilation, strict=True))
    runs = _runs(weight.shape[3], (width, g.shape[3]), *options[1])
    _convolve_input(np.ascontiguousarray(g), _weights(weight), runs, *options[0], out)
    return _columns(out, width)


def convolve_weight(
    g: Array, input: Array, weight_shape: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """The gradient of `convolve` for its weight, from g (N, O, OH, OW)."""
    out = np.zeros((weight_shape[0], *weight_shape[2:]), g.dtype)
    options = list(zip(stride, padding, dilation, strict=True))
    runs = _runs(weight_shape[3], (input.shape[3], g.shape[3]), *options[1])
    _convolve_weight(np.ascontiguousarray(g), _phases(input, stride[1]), runs, *options[0], out)
    return out.reshape(weight_shape)


def _weights(weight: Array) -> Array:
    return np.ascontiguousarray(weight[:, 0])


def _phases(x: Array, stride: int) -> Array:
    """(N, C, H, W) as (N, C, H, stride, W / stride): columns that are `stride` apart lie side by side."""
    if stride == 1:
        return np.ascontiguousarray(x)[:, :, :, None]
    *lead, width = x.shape
    out = np.zeros((*lead, stride, -(-width // stride)), x.dtype)
    for phase in range(min(stride, width)):
        part = x[..., phase::stride]
        out[..., phase, : part.shape[3]] = part
    return out


def _columns(phases: Array, width: int) -> Array:
    """The inverse of `_phases`."""
    *lead, stride, _ = phases.shape
    if stride == 1:
        return phases[:, :, :, 0]
    out = np.empty((*lead, width), phases.dtype)
    for phase in range(min(stride, width)):
        part = out[..., phase::stride]
        part[...] = phases[..., phase, : part.shape[3]]
    return out


def _runs(kernel: int, size: Pair, stride: int, padding: int, dilation: int) -> Array:
    """(kernel, 4): which outputs of a row each column of the kernel serves, and from where in the image.

    size: of a row of the image and of the output. The outputs are first to first + count; they
    read the phase from `start` on.
    """
    width, across = size
    shift = np.arange(kernel) * dilation - padding
    first = np.clip(-(shift // stride), 0, across)
    end = np.clip((width - 1 - shift) // stride + 1, first, across)
    return np.stack([first, end - first, shift % stride, first + shift // stride], axis=1)


@kernel
def _convolve(x, weight, offset, runs, stride, padding, dilation, out):
    images, channels, height = x.shape[:3]
    _, outputs, down, across = out.shape
    multiple = outputs // channels
    for n in range(images):
        for o in range(outputs):
            plane = x[n, o // multiple]
            for row in range(down):
                sink = out[n, o, row]
                for k in range(across):
                    sink[u(k)] = offset[o]
                for i in range(weight.shape[1]):
                    y = row * stride - padding + i * dilation
                    if y < 0 or y >= height:
                        continue
                    for j in range(len(runs)):
                        first, count, phase, start = runs[j]
                        w, source = weight[o, i, j], plane[y, phase]
                        for k in range(u(count)):
                            sink[u(first) + k] += w * source[u(start) + k]


@kernel
def _convolve_input(g, weight, runs, stride, padding, dilation, out):
    images, channels, height = out.shape[:3]
    _, outputs, down, _ = g.shape
    multiple = outputs // channels
    for n in range(images):
        for o in range(outputs):
            plane = out[n, o // multiple]
            for row in range(down):
                source = g[n, o, row]
                for i in range(weight.shape[1]):
                    y = row * stride - padding + i * dilation
                    if y < 0 or y >= height:
                        continue
                    for j in range(len(runs)):
                        first, count, phase, start = runs[j]
                        w, sink = weight[o, i, j], plane[y, phase]
                        for k in range(u(count)):
                            sink[u(start) + k] += w * source[u(first) + k]


@kernel
def _convolve_weight(g, x, runs, stride, padding, dilation, out):
    images, channels, height = x.shape[:3]
    _, outputs, down, _ = g.shape
    multiple = outputs // channels
    zero = g.dtype.type(0)
    for n in range(images):
        for o in range(outputs):
            plane = x[n, o // multiple]
            for i in range(out.shape[1]):
                for j in range(len(runs)):
                    first, count, phase, start = runs[j]
                    total = zero
                    for row in range(down):
                        y = row * stride - padding + i * dilation
                        if y < 0 or y >= height:
                            continue
                        left, right = g[n, o, row], plane[y, phase]
                        for k in range(u(count)):
                            total += left[u(first) + k] * right[u(start) + k]
                    out[o, i, j] += total
