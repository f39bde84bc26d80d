"""Compiled max pooling over one to three dimensions for the CPU, float32 and float64.

A window that meets the edge is cut; in `ceil_mode` a last window may begin inside of the image and
end beyond it. Other types, and more dimensions, are `NotImplemented`.
"""

from __future__ import annotations

import math

import numpy as np

from .threads import shared
from .vectormath import compiled_for, kernel

Array = np.ndarray
Ints = tuple[int, ...]
Pair = tuple[int, int]

_FEW = 12  # windows in a row that are looked at one by one
# With unsigned indices LLVM sees how far apart the elements are that it reads together.
u = np.uint64


def max_pool(
    input: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Array, Array]:
    """The largest element of each window of input (*, *size): (out, indices).

    indices: int64, the place in the flattened image; the first of equal elements, the last NaN if
    there are any, as in PyTorch.
    """
    dims = len(kernel_size)
    if not compiled_for(input) or dims > 3:
        return NotImplemented
    lead, image = input.shape[:-dims], input.shape[-dims:]
    options = list(zip(kernel_size, stride, padding, dilation, strict=True))
    if dims == 1:
        out, indices = _pool(input.reshape(-1, 1, *image), (1, 1, 0, 1), options[0], ceil_mode)
    elif dims == 2:
        out, indices = _pool(input.reshape(-1, *image), options[0], options[1], ceil_mode)
    else:
        out, indices = _pool_volumes(input.reshape(-1, *image), options, ceil_mode)
    size = out.shape[-dims:]
    return out.reshape(*lead, *size), indices.reshape(*lead, *size)


def largest_of_places(flat: Array, places: Array) -> tuple[Array, Array]:
    """The largest element of each window of flat (B, S), and where: both (B, windows).

    places: (B or 1, windows, taps), those that each window meets. Of equal elements and of NaN as `max_pool`.
    """
    if not compiled_for(flat):
        return NotImplemented
    shape = (len(flat), places.shape[1])
    out, indices = np.empty(shape, flat.dtype), np.empty(shape, np.int64)
    _largest_of_places(np.ascontiguousarray(flat), np.ascontiguousarray(places), out, indices)
    return out, indices


# What the options (kernel, stride, padding, dilation) of one dimension are.
Option = tuple[int, int, int, int]


def _pool(input: Array, down: Option, across: Option, ceil_mode: bool) -> tuple[Array, Array]:
    """(out, indices) of images (n, H, W)."""
    shape = (
        len(input),
        *(_pooled(n, *o, ceil_mode) for n, o in zip(input.shape[1:], (down, across), strict=True)),
    )
    out, indices = np.empty(shape, input.dtype), np.empty(shape, np.int64)
    x = np.ascontiguousarray(input)
    if down == across == (2, 2, 0, 1) and not ceil_mode:
        _max_pool_2x2(x, out, indices)
    else:
        _max_pool(x, *zip(down, across, strict=True), out, indices)
    return out, indices


def _pool_volumes(input: Array, options: list[Option], ceil_mode: bool) -> tuple[Array, Array]:
    """(out, indices) of volumes (n, D, H, W): every frame is pooled, and then each place of them along the depth."""
    depth, down, across = options
    n, frames, *image = input.shape
    best, places = _pool(input.reshape(n * frames, *image), down, across, ceil_mode)
    size = best.shape[1:]
    windows = math.prod(size)
    out, indices = _pool(best.reshape(n, frames, windows), depth, (1, 1, 0, 1), ceil_mode)
    count = indices.shape[1]
    found = np.take_along_axis(
        places.reshape(n, frames * windows), indices.reshape(n, count * windows), 1
    ).reshape(indices.shape)
    found += indices // windows * math.prod(image)
    return out.reshape(n, count, *size), found.reshape(n, count, *size)


def _pooled(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    reach = n + 2 * padding - dilation * (kernel - 1) - 1
    count = (reach + (stride - 1 if ceil_mode else 0)) // stride + 1
    # The last window begins inside of the image or of the padding before it.
    return count - 1 if ceil_mode and (count - 1) * stride >= n + padding else count


@kernel
def _inside(place, size, stride, padding, dilation, length):
    """(place of the first element, number of elements) of the part of a window that lies in the image."""
    first = place * stride - padding
    count = size
    while first < 0:
        first, count = first + dilation, count - 1
    while first + (count - 1) * dilation >= length:
        count -= 1
    return first, count


@kernel
def _largest(image, top, high, down, left, wide, across):
    """The largest of high x wide elements and its place; without a branch that the data decide, but for NaN."""
    width = image.shape[1]
    best = image.dtype.type(-np.inf)
    nans = 0
    for i in range(high):
        for j in range(wide):
            v = image[u(top + i * down), u(left + j * across)]
            best = v if v > best else best
            nans += v != v
    # A window between whose taps the image falls has no element.
    at = min(top, image.shape[0] - 1) * width + min(left, width - 1)
    for i in range(high):
        for j in range(wide):
            y, z = top + (high - 1 - i) * down, left + (wide - 1 - j) * across
            at = y * width + z if image[u(y), u(z)] == best else at
    if nans:
        for i in range(high):
            for j in range(wide):
                y, z = top + i * down, left + j * across
                if image[y, z] != image[y, z]:
                    best, at = image[y, z], y * width + z
    return best, at


@kernel
def _raised(line, left, step, place, best, at, first, count):
    """Let elements left, left + step, … of a line of the image, the first of which is at `place`, replace smaller ones, or be nan."""
    if step == 1:
        for k in range(count):
            v, largest, kept = line[u(left) + u(k)], best[u(first) + u(k)], at[u(first) + u(k)]
            more = (v > largest) | (v != v)
            best[u(first) + u(k)] = v if more else largest
            at[u(first) + u(k)] = place + k if more else kept
    elif step == 2:
        for k in range(count):
            v, largest, kept = line[u(left) + u(2) * u(k)], best[u(first) + u(k)], at[u(first) + u(k)]
            more = (v > largest) | (v != v)
            best[u(first) + u(k)] = v if more else largest
            at[u(first) + u(k)] = place + 2 * k if more else kept
    else:
        for k in range(count):
            v, largest, kept = line[u(left) + u(step) * u(k)], best[u(first) + u(k)], at[u(first) + u(k)]
            more = (v > largest) | (v != v)
            best[u(first) + u(k)] = v if more else largest
            at[u(first) + u(k)] = place + step * k if more else kept


@shared("x", "out", "indices")
@kernel
def _max_pool(x, size, stride, padding, dilation, out, indices):
    images, height, width = x.shape
    _, down, across = out.shape
    step = stride[1]
    for n in range(images):
        for row in range(down):
            top, high = _inside(row, size[0], stride[0], padding[0], dilation[0], height)
            if across < _FEW:
                for column in range(across):
                    left, wide = _inside(column, size[1], stride[1], padding[1], dilation[1], width)
                    best, at = _largest(x[n], top, high, dilation[0], left, wide, dilation[1])
                    out[n, row, column] = best
                    indices[n, row, column] = at
                continue
            largest, places = out[n, row], indices[n, row]
            # A window between whose taps the image falls has no element.
            line = min(top, height - 1) * width
            for k in range(across):
                largest[k], places[k] = -np.inf, line + min(k * step - padding[1], width - 1)
            for k in range(min(across, (padding[1] + step - 1) // step)):
                left = _inside(k, size[1], step, padding[1], dilation[1], width)[0]
                places[k] = line + min(left, width - 1)
            for i in range(high):
                y = top + i * dilation[0]
                values = x[n, y]
                for j in range(size[1]):
                    shift = j * dilation[1] - padding[1]
                    first = max(0, -(shift // step))
                    count = min(across, (width - 1 - shift) // step + 1) - first
                    left = first * step + shift
                    if count > 0:
                        _raised(values, left, step, y * width + left, largest, places, first, count)


@shared("x", "out", "indices")
@kernel
def _max_pool_2x2(x, out, indices):
    images, down, across = out.shape
    width = x.shape[2]
    number = x.dtype.type
    for n in range(images):
        for row in range(down):
            top, bottom = x[n, 2 * row], x[n, 2 * row + 1]
            best, at = out[n, row], indices[n, row]
            start = 2 * row * width
            probe = number(0)
            for k in range(across):
                j = u(2) * u(k)
                a, b, c, d = top[j], top[j + u(1)], bottom[j], bottom[j + u(1)]
                high = b if b > a else a
                low = d if d > c else c
                largest = low if low > high else high
                best[k] = largest
                place = start + 2 * k
                i = place + width if c == largest else place + width + 1
                i = place + 1 if b == largest else i
                at[k] = place if a == largest else i
                probe += (a + b + c + d) * number(0)
            if probe != number(0):  # there is a NaN, or an infinity
                for k in range(across):
                    best[k], at[k] = _largest(x[n], 2 * row, 2, 1, 2 * k, 2, 1)


@kernel
def _largest_of_places(flat, places, out, indices):
    for n in range(out.shape[0]):
        image, windows = flat[n], places[n if len(places) > 1 else 0]
        for w in range(out.shape[1]):
            met = windows[w]
            best = image.dtype.type(-np.inf)
            nans = 0
            for tap in range(met.size):
                v = image[u(met[tap])]
                best = v if v > best else best
                nans += v != v
            at = met[0]
            for tap in range(met.size):
                place = met[u(met.size - 1 - tap)]
                at = place if image[u(place)] == best else at
            if nans:
                for tap in range(met.size):
                    if image[met[tap]] != image[met[tap]]:
                        best, at = image[met[tap]], met[tap]
            out[n, w] = best
            indices[n, w] = at
